#!/usr/bin/env python3
"""Runs libiscsi's iscsi-test-cu against units of several shapes and compares with a list.

    iscsi_test_cu.py [--matrix] LIST SHAPE=URL[,URL2] [SHAPE=URL[,URL2]...]
    iscsi_test_cu.py --continuous FAMILY=URL[,URL2] [FAMILY=URL[,URL2]...]

The first form runs every suite of the family ALL in a process of its own, so that one failure cannot
spoil the tests after it, on every shape; --matrix prints what did not pass everywhere. The second
runs whole families, each in one process over one connection; nothing may fail.

The tool counts a test that it skipped as passed. Here a test is

    FAIL   if an assertion failed, or it did not come to an end
    SKIP   if it printed [SKIPPED] between its beginning and its result
    WARN   if it printed [WARNING] and neither of those
    PASS   if it passed and printed neither

What the tool prints while it cleans up after the last test of a suite belongs to no test.

LIST has lines `SHAPE Suite.Test FAIL|SKIP|WARN reason`; `*` stands for any part of a test's name.
SHAPE `never` names the tests that pass on no shape. For the first shape the list is exact: each test
passes or has the result of its line, or of its `never` line, and nothing else. On the other shapes
what is not offered may be skipped, and only a FAIL needs a line. A line that is not needed any more
is an error: the list may only shrink. The sanitize tests are only run where the shape is `sanitize`.
"""

import concurrent.futures
import fnmatch
import re
import subprocess
import sys

SUITE_SECONDS = 60
FAMILY_SECONDS = 240
# Suites of different units that run at once. Most of their time is spent waiting.
WORKERS = 4
# Tests that are only run on one shape: a sanitize must go on for longer than five seconds.
ONLY = {"Sanitize.Reset": "slow"}
ONLY_SECONDS = 200
# PASS on the first shape, at the least.
LEAST = 201
RESULTS = ("PASS", "WARN", "SKIP", "FAIL")


def listing():
    """Suite -> tests of the family ALL."""
    text = subprocess.run(["iscsi-test-cu", "-l"], capture_output=True, text=True).stdout
    suites = {}
    for suite, test in re.findall(r"^ALL\.(\w+)\.(\S+)$", text, re.M):
        suites.setdefault(suite, []).append(f"{suite}.{test}")
    return suites


def run(pattern, urls, sanitize, seconds):
    """The tests that match a pattern: name -> result. And what went wrong with the run itself."""
    command = ["iscsi-test-cu", "-d", "-v", "-t", pattern] + ["-S"] * sanitize + urls
    wrong = None
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds)
        output = done.stdout
        if done.returncode < 0:
            wrong = f"{pattern} was ended by signal {-done.returncode}"
    except subprocess.TimeoutExpired as late:
        output, wrong = late.stdout or b"", f"{pattern} took more than {seconds} s"
    results = parse(output.decode(errors="replace"))
    if not results:
        wrong = wrong or f"{pattern} ran no test: {output[-300:].decode(errors='replace')}"
    return results, wrong


def parse(text):
    suite, test, results = None, None, {}
    for line in text.split("\nRun Summary")[0].splitlines():
        if found := re.match(r"Suite: (\S+)", line):
            suite, test = found[1], None
        elif found := re.match(r"\s+Test: (\S+) \.\.\.(.*)", line):
            test, line = f"{suite}.{found[1]}", found[2]
            # What a test that never ends leaves behind.
            results[test] = "FAIL"
            printed = ""
        if test is None:
            continue
        # The result stands at the beginning of a line, or right behind the test's name; what follows
        # it on the same line was printed after the test.
        if re.match(r"passed|FAILED", line):
            if line.startswith("passed"):
                skipped, warned = "[SKIPPED]" in printed, "[WARNING]" in printed
                results[test] = "SKIP" if skipped else "WARN" if warned else "PASS"
            test = None
        else:
            printed += line
    return results


def known(path):
    lines = []
    for number, line in enumerate(open(path), 1):
        line = line.split("#", 1)[0].strip()
        if line:
            fields = line.split(None, 3)
            if len(fields) < 4 or fields[2] not in RESULTS[1:]:
                sys.exit(f"{path}:{number}: expected `SHAPE Suite.Test FAIL|SKIP|WARN reason`")
            lines.append((f"{path}:{number}", *fields[:3]))
    return lines


def compare(lines, shapes, first, results):
    """What does not agree with the list."""
    problems, used = [], set()

    def allowed(shape, name):
        for line in lines:
            place, of, pattern, result = line
            if of in (shape, "never") and fnmatch.fnmatchcase(name, pattern):
                yield place, of, result

    for shape in shapes:
        for name, result in results[shape].items():
            fitting = [(place, of) for place, of, listed in allowed(shape, name) if listed == result]
            used.update(place for place, of in fitting if of == shape)
            must_be_listed = result != "PASS" if shape == first else result == "FAIL"
            if must_be_listed and not fitting:
                listed = sorted({listed for _, _, listed in allowed(shape, name)})
                problems.append(f"{shape}: {name} is {result}, {listed or 'not'} listed")
    passed = {name for shape in shapes for name, result in results[shape].items() if result == "PASS"}
    every = {name for shape in shapes for name in results[shape]}
    for place, of, pattern, _ in lines:
        fitting = {name for name in every if fnmatch.fnmatchcase(name, pattern)}
        if of == "never":
            used.update([place] if fitting else [])
            problems += [f"{place}: {name} passes; take it off" for name in sorted(fitting & passed)]
        elif of == first:
            better = {name for name in fitting if results[of].get(name) == "PASS"}
            problems += [f"{place}: {name} passes; take it off" for name in sorted(better)]
        if of in (*shapes, "never") and place not in used:
            problems.append(f"{place}: nothing needs this line; take it off")
    never = {name for name in every if any(of == "never" and fnmatch.fnmatchcase(name, pattern)
                                           for _, of, pattern, _ in lines)}
    problems += [f"{name} passes on no shape and is not listed as `never`"
                 for name in sorted(every - passed - never)]
    return problems


def tally(results):
    return ", ".join(f"{sum(one == kind for one in results.values())} {kind}" for kind in RESULTS)


def shapes_form(list_path, arguments, matrix):
    shapes = dict(argument.split("=", 1) for argument in arguments)
    lines, suites = known(list_path), listing()
    wanted = {name for tests in suites.values() for name in tests}
    results, problems = {shape: {} for shape in shapes}, []

    def plan(shape):
        """What is run on a shape: patterns and how long each may take."""
        only = [name for name, of in ONLY.items() if of == shape]
        if only:
            return [(f"ALL.{name}", ONLY_SECONDS) for name in only]
        patterns = []
        # MultipathIO.CompareAndWrite takes for granted that block 256 holds zeroes.
        for suite, tests in sorted(suites.items(), key=lambda one: (one[0] != "MultipathIO", one[0])):
            rest = [name for name in tests if name not in ONLY]
            whole = shape != "sanitize" or len(rest) == len(tests)
            patterns += [f"ALL.{suite}"] if whole else [f"ALL.{name}" for name in rest]
        return [(pattern, SUITE_SECONDS) for pattern in patterns]

    def whole(shape):
        for pattern, seconds in plan(shape):
            sanitize = shape in ("sanitize", *ONLY.values())
            found, wrong = run(pattern, shapes[shape].split(","), sanitize, seconds)
            results[shape].update(found)
            if wrong:
                problems.append(f"{shape}: {wrong}")

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(whole, shapes))
    first = next(iter(shapes))
    names = list(shapes)
    if matrix:
        print(f"{'':42}" + " ".join(f"{shape:9}" for shape in names))
        for name in sorted(wanted):
            row = [results[shape].get(name, "-") for shape in names]
            if set(row) != {"PASS"}:
                print(f"{name:42}" + " ".join(f"{result:9}" for result in row))
    for shape in names:
        here = {name for name, of in ONLY.items() if of == shape}
        missing = (here or wanted - (ONLY.keys() if shape == "sanitize" else set())) - set(results[shape])
        problems += [f"{shape}: {name} was not run" for name in sorted(missing)]
        print(f"{shape}: {len(results[shape])} tests: {tally(results[shape])}")
    passes = sum(result == "PASS" for result in results[first].values())
    if passes < LEAST:
        problems.append(f"{first}: {passes} PASS, at least {LEAST} wanted")
    return problems + compare(lines, names, first, results)


def continuous_form(arguments):
    families = dict(argument.split("=", 1) for argument in arguments)

    def whole(family):
        return family, run(family, families[family].split(","), False, FAMILY_SECONDS)

    problems = []
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for family, (results, wrong) in pool.map(whole, families):
            print(f"{family} in one process: {len(results)} tests: {tally(results)}")
            problems += [f"{family}: {wrong}"] if wrong else []
            problems += [f"{family}: {name} is FAIL" for name, result in results.items() if result == "FAIL"]
    return problems


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--continuous":
        problems = continuous_form(sys.argv[2:])
    else:
        matrix = sys.argv[1] == "--matrix"
        problems = shapes_form(sys.argv[1 + matrix], sys.argv[2 + matrix:], matrix)
    if problems:
        sys.exit("\n".join(problems))


main()
