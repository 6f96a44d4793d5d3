"""libiscsi's iscsi-test-cu on units of several shapes, compared with the list of known failures.

The tool counts a test that it skipped as passed. Here a test is

    FAIL   if an assertion failed, or it did not complete
    SKIP   if it printed [SKIPPED] between its beginning and its result
    WARN   if it printed [WARNING] and neither of those
    PASS   if it passed and printed neither

Output during the clean-up after the last test of a suite belongs to no test.

known.txt has lines `SHAPE Suite.Test FAIL|SKIP|WARN reason`; `*` stands for any part of a test's name. Shape `never`
names the tests that pass on no shape. For the shape `thin` the list is exact: each test passes or has the result of
its line, or of its `never` line, and nothing else. On the other shapes what is not offered may be skipped, and only a
FAIL needs a line. A line that is not needed any more is an error: the list may only shrink. Lines of shapes that are
not run, and what passes on no shape, are judged where all shapes are run.
"""

import concurrent.futures
import fnmatch
import re
import subprocess

from ..harness.case import ROOT, TARGET, Failed, case
from ..harness.config import Config
from ..harness.gateway import Gateway

# A suite takes seconds; these limits are for a suite that hangs, on a busy machine.
SUITE_SECONDS, FAMILY_SECONDS = 240, 480
# Parallel runs, each on a separate unit. They mostly wait.
WORKERS = 4
# Tests for a single shape: a sanitize must take longer than five seconds.
ONLY, ONLY_SECONDS = {"Sanitize.Reset": "slow"}, 200
EXACT = "thin"
PASSES_MIN = 201
RESULTS = ("PASS", "WARN", "SKIP", "FAIL")
# The keys of each shape's volume. Overwriting the slow one takes 8 s on any disk.
SHAPES = {"thin": {"atomic": True, "physical_block_size": 512}, "plain": {"thin": False}, "removable": {"removable": True},
          "sanitize": {"sanitize": True}, "read-only": {"read_only": True}, "4k": {"block_size": 4096},
          "slow": {"sanitize": True, "cap_bandwidth": "32MiB/s"}}
FAMILIES = ["ALL", "SCSI", "LINUX", "iSCSI"]
TOOLS = ("iscsi-test-cu",)


class Units:
    """A gateway with a unit per name, and two portals: two paths to each unit. Each unit has a separate target, so that
    a reset does not affect the others."""

    def __init__(self, run, units):
        config = Config(listen=["127.0.0.1:0", "127.0.0.2:0"])
        for name, keys in units.items():
            # A sanitize skips holes, and the slow one has to take its time.
            (run.noise if name == "slow" else run.image)(f"{name}.img", 256)
            config.volume(name, file=run.folder / f"{name}.img", size="256MiB", io="buffered", **keys)
            config.target(name, name=f"{TARGET}.{name.lower()}")
        self.gateway = Gateway(run, config)
        self.gateway.start()

    def urls(self, name):
        return [self.gateway.url(f"{TARGET}.{name.lower()}", portal=number) for number in (0, 1)]

    def finish(self, problems):
        if not self.gateway.alive():
            problems.append("the gateway is gone")
        else:
            self.gateway.stop()
        if problems:
            raise Failed(f"{len(problems)} problems: " + "\n".join(problems))


@case("test_cu.shapes", "iscsi-test-cu passes on every shape of unit, except for the tests in known.txt",
      gate={"shapes": ["thin", "4k"]}, nightly={"shapes": list(SHAPES)}, tools=TOOLS, limit=1200, nightly_limit=1800)
def shapes(run, shapes):
    units, suites, known = Units(run, {name: SHAPES[name] for name in shapes}), listing(), known_results()
    wanted = {name for tests in suites.values() for name in tests}
    results, problems = {shape: {} for shape in shapes}, []

    def whole(shape):
        for pattern, seconds in plan(shape, suites):
            found, wrong = suite(pattern, units.urls(shape), shape in ("sanitize", *ONLY.values()), seconds)
            results[shape].update(found)
            problems.extend([f"{shape}: {wrong}"] if wrong else [])

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(whole, shapes))
    print(f"{'':42}" + " ".join(f"{shape:9}" for shape in shapes))
    for name in sorted(wanted):
        row = [results[shape].get(name, "-") for shape in shapes]
        if set(row) != {"PASS"}:
            print(f"{name:42}" + " ".join(f"{result:9}" for result in row))
    for shape in shapes:
        here = {name for name, of in ONLY.items() if of == shape}
        missing = (here or wanted - (ONLY.keys() if shape == "sanitize" else set())) - set(results[shape])
        problems += [f"{shape}: {name} was not run" for name in sorted(missing)]
        print(f"{shape}: {len(results[shape])} tests: {tally(results[shape])}")
    passes = sum(result == "PASS" for result in results[EXACT].values())
    if passes < PASSES_MIN:
        problems.append(f"{EXACT}: {passes} PASS, at least {PASSES_MIN} wanted")
    units.finish(problems + compare(known, results, complete=len(shapes) == len(SHAPES)))


def families(run, families):
    """Whole families, each in one process over one connection; no test may fail."""
    units, problems = Units(run, {family: {"physical_block_size": 512} for family in families}), []
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        runs = [(family, pool.submit(suite, family, units.urls(family), False, FAMILY_SECONDS)) for family in families]
        for family, run_of in runs:
            results, wrong = run_of.result()
            print(f"{family} in one process: {len(results)} tests: {tally(results)}")
            problems += [f"{family}: {wrong}"] if wrong else []
            problems += [f"{family}: {name} is FAIL" for name, result in results.items() if result == "FAIL"]
    units.finish(problems)


case("test_cu.family", "the family ALL of iscsi-test-cu runs over one connection without a failure",
     gate={"families": ["ALL"]}, tools=TOOLS, limit=600)(families)
case("test_cu.families", "every family of iscsi-test-cu runs over one connection without a failure",
     nightly={"families": FAMILIES}, tools=TOOLS, limit=900)(families)


def listing():
    """Suite -> tests of the family ALL."""
    text = subprocess.run(["iscsi-test-cu", "-l"], capture_output=True, text=True, check=False).stdout
    suites = {}
    for name, test in re.findall(r"^ALL\.(\w+)\.(\S+)$", text, re.M):
        suites.setdefault(name, []).append(f"{name}.{test}")
    return suites


def plan(shape, suites):
    """The patterns to run on a shape, with a time limit for each. One process per suite, so that a failure does not affect
    later tests."""
    only = [name for name, of in ONLY.items() if of == shape]
    if only:
        return [(f"ALL.{name}", ONLY_SECONDS) for name in only]
    patterns = []
    # MultipathIO.CompareAndWrite assumes that block 256 holds zeroes.
    for name, tests in sorted(suites.items(), key=lambda one: (one[0] != "MultipathIO", one[0])):
        rest = [test for test in tests if test not in ONLY]
        whole = shape != "sanitize" or len(rest) == len(tests)
        patterns += [f"ALL.{name}"] if whole else [f"ALL.{test}" for test in rest]
    return [(pattern, SUITE_SECONDS) for pattern in patterns]


def suite(pattern, urls, sanitize, seconds):
    """The tests that match a pattern: name -> result. And the errors of the run itself."""
    command, wrong = ["iscsi-test-cu", "-d", "-v", "-t", pattern] + ["-S"] * sanitize + urls, None
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
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
    name, test, results = None, None, {}
    for line in text.split("\nRun Summary")[0].splitlines():
        if found := re.match(r"Suite: (\S+)", line):
            name, test = found[1], None
        elif found := re.match(r"\s+Test: (\S+) \.\.\.(.*)", line):
            test, line = f"{name}.{found[1]}", found[2]
            # The remains of a test that never ends.
            results[test] = "FAIL"
            printed = ""
        if test is None:
            continue
        # The result is at the beginning of a line, or directly behind the test's name; text after it on the same line
        # was printed after the test.
        if re.match(r"passed|FAILED", line):
            if line.startswith("passed"):
                skipped, warned = "[SKIPPED]" in printed, "[WARNING]" in printed
                results[test] = "SKIP" if skipped else "WARN" if warned else "PASS"
            test = None
        else:
            printed += line
    return results


def known_results():
    """Lines of known.txt: location, shape, pattern, result."""
    path, lines = ROOT / "conformance/known.txt", []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if line:
            fields = line.split(None, 3)
            if len(fields) < 4 or fields[0] not in ("never", *SHAPES) or fields[2] not in RESULTS[1:]:
                raise Failed(f"{path}:{number}: expected `SHAPE Suite.Test FAIL|SKIP|WARN reason`")
            lines.append((f"known.txt:{number}", *fields[:3]))
    return lines


def compare(lines, results, complete):
    """Differences from the list; `complete` if all shapes were run."""
    problems, used = [], set()
    for shape, tests in results.items():
        for name, result in tests.items():
            fitting = [line for line in lines if line[1] in (shape, "never") and fnmatch.fnmatchcase(name, line[2])]
            good = [line for line in fitting if line[3] == result]
            used.update(place for place, of, *_ in good if of == shape)
            must_be_listed = result != "PASS" if shape == EXACT else result == "FAIL"
            if must_be_listed and not good:
                listed = sorted({line[3] for line in fitting})
                problems.append(f"{shape}: {name} is {result}, {listed or 'not'} listed")
    passed = {name for tests in results.values() for name, result in tests.items() if result == "PASS"}
    every = {name for tests in results.values() for name in tests}
    for place, of, pattern, _ in lines:
        fitting = {name for name in every if fnmatch.fnmatchcase(name, pattern)}
        if of == "never":
            used.update([place] if fitting else [])
            problems += [f"{place}: {name} passes; remove the line" for name in sorted(fitting & passed)]
        elif of == EXACT:
            problems += [f"{place}: {name} passes; remove the line" for name in sorted(fitting) if results[of].get(name) == "PASS"]
        if of in (*results, "never") and place not in used:
            problems.append(f"{place}: no result matches this line; remove it")
    if complete:
        never = {name for name in every if any(of == "never" and fnmatch.fnmatchcase(name, pattern) for _, of, pattern, _ in lines)}
        problems += [f"{name} passes on no shape and is not listed as `never`" for name in sorted(every - passed - never)]
    return problems


def tally(results):
    return ", ".join(f"{sum(one == kind for one in results.values())} {kind}" for kind in RESULTS)
