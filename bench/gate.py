#!/usr/bin/env python3
"""Counts instructions per request under cachegrind and compares them with the accepted counts.

    bench/gate.py                     compare with accepted.csv: exit 0 if all are within 2 %, else 4
    bench/gate.py --accept WHY        write the counts to accepted.csv, and each change with WHY to history.csv
    bench/gate.py --only PREFIX       only the metrics that begin with PREFIX
    bench/gate.py --programs FOLDER   use the release programs of another build

A count is the difference of two runs of different lengths, divided by the difference in requests, which
excludes the set-up. It does not depend on the load of the machine. It depends on the compiler and on the C
library, so accepted.csv names both, and counts of another compiler are not compared.

`gateway/PROTOCOL-OPERATION` is the whole program `weir serve`, with 4 KiB requests at depth 1, on a file in the
page cache. `pipeline/CASE` is a whole pipeline; `pipeline/CASE/STAGE` is the part of it whose source lines are in that
stage's folder. A stage may move by 2 % of its pipeline's whole count.
"""

import argparse
import csv
import datetime
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from bench import gateway_cost  # noqa: E402 - needs the path above

ACCEPTED = ROOT / "bench" / "accepted.csv"
HISTORY = ROOT / "bench" / "history.csv"

# Maximum relative difference from the accepted count, in either direction.
TOLERANCE = 0.02

# Time limit of one program under cachegrind, in seconds: ten times the duration of the slowest.
SECONDS_MAX = 300

STAGES = ("accept", "account", "cache", "control", "dispatch", "path", "pipeline", "store", "transfer")

PIPELINE_CASES = ("open", "slack", "contract", "fair-time", "two-paths", "cache-hit")


class Case:
    """Two runs of `weir-measure` of different lengths: metric, arguments around the length."""

    def __init__(self, metric, arguments, warm_up, count, after=()):
        self.metric = metric
        self.arguments, self.after = arguments, after
        self.warm_up, self.count = warm_up, count

    def run(self, prefix, programs, _folder, length):
        command = [*prefix, str(programs / "weir-measure"), *self.arguments, str(length), *self.after]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
        if run.returncode:
            raise RuntimeError(f"{self.metric}: exit status {run.returncode}: {run.stderr[-1500:]}")


class GatewayCase:
    """A gateway with two numbers of requests."""

    warm_up, count = 1_000, 5_000

    def __init__(self, protocol, operation):
        self.protocol, self.operation = protocol, operation
        self.metric = f"gateway/{protocol}-{operation}"

    def run(self, prefix, programs, folder, length):
        gateway_cost.run(prefix, programs / "weir", folder, self.protocol, self.operation, length)


CASES = [
    *(
        Case(f"pipeline/{case}", ["pipeline", case], 20_000, 40_000)
        for case in PIPELINE_CASES
    ),
    Case("control/slack-1000-tenants", ["control", "slack", "1000"], 50_000, 50_000),
    Case("path/jsw-2-paths", ["path", "jsw", "2"], 20_000, 20_000),
    Case("path/jsw-8-paths", ["path", "jsw", "8"], 20_000, 20_000),
    Case("simulator/closed-loop", ["simulator"], 20_000, 40_000, ("1",)),
    # Writes are not counted: the number of wake-ups per write depends on the timing of the kernel's worker (up to 3 %).
    *(GatewayCase(protocol, "read") for protocol in ("iscsi", "nbd")),
]


def fail(message):
    print(f"bench/gate.py: {message}", file=sys.stderr)
    sys.exit(1)


def counted(case, programs, length):
    """Instructions of a run, by source file."""
    with tempfile.TemporaryDirectory(prefix="weir-gate-") as name:
        folder = Path(name)
        out = folder / "cachegrind.out"
        prefix = ["valgrind", "--quiet", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}"]
        case.run(prefix, programs, folder, length)
        return by_source(out)


def by_source(out):
    """Sums of a cachegrind file by source file."""
    by_file, name = {}, ""
    with out.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("fl="):
                name = line[3:].strip()
            elif line[0].isdigit():
                by_file[name] = by_file.get(name, 0) + int(line.split()[1])
    return by_file


def stage_of(file):
    """The stage of `flow` whose folder has this source file; None for every other file."""
    found = re.search(r"crates/flow/src/([a-z_]+)", file)
    return found.group(1) if found and found.group(1) in STAGES else None


def measure(case, programs):
    """Counts per request: {metric: instructions}."""
    short = counted(case, programs, case.warm_up)
    long = counted(case, programs, case.warm_up + case.count)

    def each(runs, keep):
        return sum(count for file, count in runs.items() if keep(file))

    def per_request(keep):
        return (each(long, keep) - each(short, keep)) / case.count

    counts = {case.metric: per_request(lambda _: True)}
    if case.metric.startswith("pipeline/"):
        for stage in STAGES:
            # `keep` is used before the next iteration, so it may refer to the loop's variable.
            value = per_request(lambda file: stage_of(file) == stage)  # noqa: B023
            if value:
                counts[f"{case.metric}/{stage}"] = value
    return counts


def compiler():
    version = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return f"{version.stdout.strip()}, libc {platform.libc_ver()[1]}, {platform.machine()}"


def read_accepted():
    """The compiler and the counts of accepted.csv."""
    if not ACCEPTED.exists():
        return None, {}
    with ACCEPTED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    head = dict(rows[:1])
    return head.get("compiler"), {metric: float(value) for metric, value in rows[1:]}


def base_of(metric):
    """`pipeline/slack` for `pipeline/slack/control`: the metric to which the tolerance is relative."""
    return "/".join(metric.split("/")[:2])


def accept(counts, accepted, why, only):
    """Writes the new counts, and the changes to the history."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    today = datetime.date.today().isoformat()
    fresh = not HISTORY.exists()
    with HISTORY.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["date", "parent commit", "metric", "before", "after", "why"])
        for metric, value in counts.items():
            before = accepted.get(metric)
            if before is None or round(before) != round(value):
                old = "" if before is None else round(before)
                writer.writerow([today, commit.stdout.strip(), metric, old, round(value), why])
    kept = {m: v for m, v in accepted.items() if only and not m.startswith(only)}
    with ACCEPTED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["compiler", compiler()])
        for metric, value in sorted({**kept, **counts}.items()):
            writer.writerow([metric, round(value)])


def compare(counts, accepted, judge=True):
    """Prints every count beside the accepted one; returns the metrics that are out of tolerance, if they are checked."""
    out = []
    width = max(map(len, counts))
    print(f"{'instructions per request':<{width}} {'accepted':>9} {'now':>9}  change")
    for metric, value in counts.items():
        before = accepted.get(metric)
        if before is None:
            # A new metric, or a stage that had no instructions: accepted like any change.
            before = 0.0
        whole = accepted.get(base_of(metric), 0.0)
        off = judge and abs(value - before) > TOLERANCE * whole
        change = f"{100 * (value / before - 1):+.1f} %" if before else "new"
        print(f"{metric:<{width}} {before:>9.0f} {value:>9.0f}  {change}{'  OUT OF TOLERANCE' if off else ''}")
        if off:
            out.append(metric)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", metavar="WHY", help="write the counts as the accepted ones, for this reason")
    parser.add_argument("--only", metavar="PREFIX", default="", help="only metrics that begin with PREFIX")
    parser.add_argument("--programs", metavar="FOLDER", type=Path, help="folder with the release builds of `weir` and `weir-measure`")
    options = parser.parse_args()

    cases = [case for case in CASES if case.metric.startswith(options.only) or options.only.startswith(case.metric)]
    if not cases:
        fail(f"no metric begins with {options.only}")
    programs = options.programs
    if programs is None:
        # The whole workspace, as the gate builds it: a package alone has other features, and is another build.
        if subprocess.run(["cargo", "build", "--quiet", "--release", "--locked"], cwd=ROOT, check=False).returncode:
            fail("the programs do not build")
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        programs = Path(target) / "release"

    # The gateway runs in a separate folder.
    programs = programs.resolve()
    counts = {}
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for measured in pool.map(lambda case: measure(case, programs), cases):
                counts.update(measured)
    except (RuntimeError, subprocess.SubprocessError) as error:
        fail(error)

    known_by, accepted = read_accepted()
    if options.accept:
        accept(counts, accepted, options.accept, options.only)
        compare(counts, accepted, judge=False)
        return 0
    if known_by != compiler():
        print(f"accepted.csv was counted with {known_by}", f"this is {compiler()}", sep="\n")
        print("Counts of different compilers cannot be compared: accept them again, in a separate commit.")
        return 4
    gone = [m for m in accepted if m not in counts and m.startswith(options.only) and m.count("/") == 1]
    out = compare(counts, accepted)
    for metric in gone:
        print(f"{metric}: accepted, but no longer counted")
    if out or gone:
        print(f"{len(out) + len(gone)} counts changed by more than {TOLERANCE:.0%}.")
        print('Accept gains, too: bench/gate.py --accept "why", and commit both files.')
        return 4
    print(f"{len(counts)} counts within {TOLERANCE:.0%} of the accepted ones")
    return 0


if __name__ == "__main__":
    sys.exit(main())
