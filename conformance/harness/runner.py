"""Runs conformance cases, each in a separate process and folder, and prints a summary."""

import argparse
import concurrent.futures
import importlib
import json
import os
import pathlib
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import xml.etree.ElementTree as xml

from .. import cases
from .case import CASES, ROOT, Failed, Missed, Run, Skipped

PASSED, FAILED, SKIPPED, INFORMATIONAL = "passed", "FAILED", "skipped", "informational"
# Exit statuses of a case's process.
STATUSES = {0: PASSED, 3: SKIPPED, 4: INFORMATIONAL}
# Time for the clean-up of a case after its time limit, in seconds.
GRACE = 30
LOG_LINES = 25


def main():
    for module in pkgutil.iter_modules(cases.__path__, cases.__name__ + "."):
        importlib.import_module(module.name)
    options = arguments()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if options.worker:
        sys.exit(work(options))
    chosen = choose(options)
    if options.list:
        show(chosen)
        sys.exit(0)
    sys.exit(Runner(options, chosen).run())


def arguments():
    parser = argparse.ArgumentParser(prog="python3 -m conformance", description="Runs conformance cases against the "
                                     "gateway. Exit status: 0 no case failed, 1 one did, 2 usage.")
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help="a case, or the first words of several (`path`); all of the tier without any")
    parser.add_argument("--nightly", action="store_true", help="every case, at full size")
    parser.add_argument("--changed", action="append", default=[], metavar="AREA",
                        help="also run the nightly cases that protect AREA, and its others in a larger size")
    parser.add_argument("--list", action="store_true", help="list the cases that would run, and what each protects")
    parser.add_argument("--junit", metavar="FILE", help="also write the results to this file, as JUnit XML")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases that run at the same time (1)")
    parser.add_argument("--weir", default=str(ROOT / "target/release/weir"), metavar="PATH", help="the gateway's program")
    parser.add_argument("--guest", metavar="FOLDER", help="folder of the scripts that build and boot the virtual machine of the guest cases")
    parser.add_argument("--seed", type=int, help="seed of random choices (1; with --nightly a different one each time)")
    parser.add_argument("--verbose", action="store_true", help="print the output of cases that pass, too")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a case that fails")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--tier", help=argparse.SUPPRESS)
    options = parser.parse_args()
    areas = {one.area for one in CASES.values() if one.area}
    for area in options.changed:
        if area not in areas:
            parser.error(f"no case protects the area {area}; areas are: {', '.join(sorted(areas))}")
    for word in options.cases:
        if not any(matches(name, word) for name in CASES):
            parser.error(f"no case is called {word}; --list --nightly shows all of them")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32) if options.nightly else 1
    return options


def matches(name, word):
    return name == word or name.startswith(word + ".")


def choose(options):
    """Pairs of a case and the tier of its size."""
    chosen = []
    for name, one in sorted(CASES.items()):
        tier = "nightly" if options.nightly else "gate"
        wanted = options.nightly or one.gate is not None
        if not options.nightly and one.area in options.changed and not one.informational:
            wanted, tier = True, "small"
        if options.cases:
            # A case whose full name is given always runs.
            wanted = name in options.cases or wanted and any(matches(name, word) for word in options.cases)
        if wanted:
            chosen.append((one, tier if tier != "gate" or one.gate is not None else "small"))
    return chosen


def show(chosen):
    for one, tier in chosen:
        words = [tier] + ["informational"] * one.informational + ["root"] * one.root + ["guest"] * one.guest
        print(f"{one.name:24} {', '.join(words):24} {one.protects}")


class Runner:
    """Starts a process for each case, and collects results."""

    def __init__(self, options, chosen):
        self.options, self.chosen, self.results = options, chosen, []
        self.running, self.lock = set(), threading.Lock()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="weir-conformance."))

    def run(self):
        if not os.access(self.options.weir, os.X_OK):
            print(f"{self.options.weir} is not a program: cargo build --release, or --weir PATH", file=sys.stderr)
            return 2
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.interrupted)
        try:
            with concurrent.futures.ThreadPoolExecutor(max(1, self.options.jobs)) as pool:
                list(pool.map(self.one, [pair for pair in self.chosen if not pair[0].alone]))
            for pair in self.chosen:
                if pair[0].alone:
                    self.one(pair)
        finally:
            if not self.options.keep or not any(self.place.iterdir()):
                shutil.rmtree(self.place, ignore_errors=True)
        return self.sum_up()

    def interrupted(self, number, _):
        with self.lock:
            for process in self.running:
                end_group(process)
        sys.exit(128 + number)

    def one(self, pair):
        one, tier = pair
        begin, attempts = time.monotonic(), []
        why = self.cannot(one)
        if why:
            self.record(one, SKIPPED, 0.0, why, "")
            return
        for _ in range(one.attempts):
            outcome, reason, said = self.attempt(one, tier)
            attempts.append(said)
            if outcome != INFORMATIONAL:
                break
        if outcome == INFORMATIONAL and not one.informational:
            outcome, reason = FAILED, f"missed in {len(attempts)} attempts: {reason}"
        elif outcome == PASSED and one.informational:
            outcome = INFORMATIONAL
        text = "".join(said if len(attempts) == 1 else f"attempt {number}:\n{said}"
                       for number, said in enumerate(attempts, 1))
        self.record(one, outcome, time.monotonic() - begin, reason, text)

    def cannot(self, one):
        if one.root and os.geteuid() != 0:
            return "needs root"
        if one.guest and not self.options.guest:
            return "needs --guest FOLDER"
        return ""

    def attempt(self, one, tier):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=one.name + ".", dir=self.place))
        said, result = folder / "output", folder / "result"
        words = [sys.executable, "-u", "-m", "conformance", "--worker", one.name, "--folder", str(folder / "case"), "--tier", tier,
                 "--weir", os.path.abspath(self.options.weir), "--seed", str(self.options.seed)]
        if self.options.guest:
            words += ["--guest", os.path.abspath(self.options.guest)]
        limit = one.limits[tier != "gate"]
        with open(said, "wb") as output:
            process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        with self.lock:
            self.running.add(process)
        late = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass
        end_group(process)
        with self.lock:
            self.running.discard(process)
        outcome = FAILED if late else STATUSES.get(process.returncode, FAILED)
        reason = result.read_text() if result.exists() else f"the case's process left with status {process.returncode}"
        if late:
            reason = f"not complete after {limit} s"
        text = said.read_text(errors="replace")
        if outcome == FAILED and self.options.keep:
            text += f"the case's folder is kept: {folder}\n"
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome, reason, text

    def record(self, one, outcome, seconds, reason, text):
        with self.lock:
            self.results.append((one, outcome, seconds, reason, text))
            print(f"{outcome:13} {one.name:24} {seconds:7.1f} s  {reason.splitlines()[0] if reason else ''}".rstrip(), flush=True)
            if text and (outcome in (FAILED, INFORMATIONAL) or self.options.verbose or self.options.nightly):
                print("".join(f"    {line}\n" for line in text.splitlines()), end="", flush=True)

    def sum_up(self):
        print("\nseconds by case:")
        for one, _, seconds, _, _ in sorted(self.results, key=lambda result: -result[2]):
            print(f"{seconds:9.1f}  {one.name}")
        for one, outcome, _, reason, _ in self.results:
            if outcome in (FAILED, SKIPPED) or outcome == INFORMATIONAL and reason:
                print(f"{outcome}: {one.name}: {reason.splitlines()[0] if reason else ''}")
        if self.options.junit:
            self.junit()
        count = {outcome: sum(result[1] == outcome for result in self.results) for outcome in (PASSED, FAILED, SKIPPED, INFORMATIONAL)}
        if count[INFORMATIONAL]:
            print(f"{count[INFORMATIONAL]} informational, without a verdict")
        print(f"seed {self.options.seed}")
        print(f"{count[PASSED]} passed, {count[FAILED]} failed, {count[SKIPPED]} skipped", flush=True)
        return 1 if count[FAILED] else 0

    def junit(self):
        suite = xml.Element("testsuite", name="conformance", tests=str(len(self.results)),
                            failures=str(sum(result[1] == FAILED for result in self.results)),
                            skipped=str(sum(result[1] == SKIPPED for result in self.results)),
                            time=f"{sum(result[2] for result in self.results):.1f}")
        for one, outcome, seconds, reason, text in sorted(self.results, key=lambda result: result[0].name):
            group, _, name = one.name.partition(".")
            node = xml.SubElement(suite, "testcase", classname=f"conformance.{group}", name=name or group, time=f"{seconds:.1f}")
            if outcome == FAILED:
                xml.SubElement(node, "failure", message=printable(reason))
            elif outcome == SKIPPED:
                xml.SubElement(node, "skipped", message=printable(reason))
            xml.SubElement(node, "system-out").text = printable(text)
        xml.ElementTree(suite).write(self.options.junit, encoding="utf-8", xml_declaration=True)


def printable(text):
    return "".join(one if one in "\n\t" or one >= " " else "?" for one in text)


def end_group(process):
    """Ends the case's process and its children: they are one process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def work(options):
    """Runs one attempt of one case in this process; its outcome is the exit status."""
    one, folder = CASES[options.worker], pathlib.Path(options.folder)
    folder.mkdir()
    run, status, reason = Run(options.weir, folder, options.seed, options.guest), 0, ""

    def told_to_end(*_):
        raise Failed("ended by a signal")

    signal.signal(signal.SIGTERM, told_to_end)
    try:
        missing = [tool for tool in one.tools if not shutil.which(tool)]
        if missing:
            raise Failed(f"not installed: {', '.join(missing)}")
        with run.stack:
            try:
                one.function(run, **one.size(options.tier))
            finally:
                # End these before the processes that they use.
                for gateway in run.gateways:
                    gateway.end()
    except Skipped as skipped:
        status, reason = 3, str(skipped)
    except Missed as missed:
        status, reason = 4, str(missed)
    except Exception as error:  # Any other exception is a failure, printed with its location.
        status, reason = 1, str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        traceback.print_exc(limit=None if not isinstance(error, Failed) else 4, file=sys.stdout)
    for gateway in run.gateways:
        if "panicked" in gateway.said():
            status, reason = 1, f"a gateway panicked: {reason}"
    if status == 1:
        for gateway in run.gateways:
            print(f"the end of {gateway.log}:\n{gateway.tail(LOG_LINES)}")
    (folder.parent / "result").write_text(reason)
    return status
