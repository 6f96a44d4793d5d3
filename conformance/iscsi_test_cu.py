#!/usr/bin/env python3
"""Runs libiscsi's iscsi-test-cu against a portal and compares with the list of known failures.

    iscsi_test_cu.py URL LIST

One process per suite, so that one failure cannot spoil the tests after it. The tool counts a test
that it skipped as passed; here it is a skip. LIST names every test that does not pass, as
`Suite.Test FAIL|SKIP reason`. The list may only shrink: a test that does worse than its line fails
this script, and so does a line whose test passes by now.
"""

import re
import subprocess
import sys

SUITE_SECONDS = 60


def suites():
    listing = subprocess.run(["iscsi-test-cu", "-l"], capture_output=True, text=True).stdout
    return sorted({m[1] for m in re.finditer(r"^ALL\.(\w+)$", listing, re.M)})


def run(suite, url):
    """The tests of one suite: name -> PASS, FAIL or SKIP."""
    command = ["iscsi-test-cu", "-d", "-v", "-t", f"ALL.{suite}", url]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
        )
        output, ended = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output, ended = late.stdout or b"", None
    text = output.decode(errors="replace").split("\nRun Summary")[0]
    results = {}
    for part in re.split(r"^\s+Test: ", text, flags=re.M)[1:]:
        name = f"{suite}.{part.split(' ', 1)[0]}"
        if re.search(r"\.\.\.\s*FAILED|^FAILED|^\s+\d+\. \S+\.c:\d+", part, re.M):
            results[name] = "FAIL"
        elif "[SKIPPED]" in part:
            results[name] = "SKIP"
        elif "passed" in part:
            results[name] = "PASS"
        else:
            results[name] = "FAIL"
    if ended is None or ended < 0 or not results:
        how = "took too long" if ended is None else f"ended with status {ended}"
        sys.exit(f"suite {suite} {how}; its last lines:\n" + "\n".join(text.splitlines()[-15:]))
    return results


def known(path):
    listed = {}
    for number, line in enumerate(open(path), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        fields = line.split(None, 2)
        if len(fields) < 3 or fields[1] not in ("FAIL", "SKIP"):
            sys.exit(f"{path}:{number}: expected `Suite.Test FAIL|SKIP reason`")
        listed[fields[0]] = fields[1]
    return listed


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    url, path = sys.argv[1:]
    results = {}
    for suite in suites():
        results.update(run(suite, url))
    listed = known(path)
    rank = {"FAIL": 0, "SKIP": 1, "PASS": 2}
    problems = []
    for name, result in sorted(results.items()):
        allowed = listed.get(name, "PASS")
        if rank[result] < rank[allowed]:
            problems.append(f"worse: {name} is {result}, listed as {allowed}")
        elif rank[result] > rank[allowed]:
            problems.append(f"better: {name} is {result}; take its {allowed} off the list")
    problems += [f"gone: {name} is listed but was not run" for name in listed if name not in results]
    counts = {kind: sum(r == kind for r in results.values()) for kind in ("PASS", "SKIP", "FAIL")}
    print(f"{len(results)} tests:", ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    if problems:
        sys.exit("\n".join(problems))


main()
