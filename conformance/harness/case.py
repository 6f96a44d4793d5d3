"""Declares conformance cases, and gives a running case its folder, its gateways and its processes."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = "iqn.2026-11.io.weir:conformance"
CASES = {}


class Failed(Exception):
    """A required condition does not hold; the text names it."""


class Missed(Exception):
    """A time or a rate misses its target, possibly because of the machine; the text names it."""


class Skipped(Exception):
    """The case cannot run here; the text is the reason."""


class Case:
    """One case, as `@case` declares it."""

    def __init__(self, function, name, protects, *, gate=None, nightly=None, small=None, area=None, limit=300,
                 nightly_limit=None, attempts=1, informational=False, root=False, guest=False, alone=False, tools=()):
        self.function, self.name, self.protects = function, name, protects
        self.gate, self.nightly, self.small, self.area = gate, nightly, small, area
        self.limits = limit, nightly_limit or limit
        self.attempts, self.informational, self.alone = attempts, informational, alone or informational
        self.root, self.guest, self.tools = root, guest, tools

    def size(self, tier):
        """The arguments of the function in a tier: `gate`, `small` or `nightly`."""
        largest = self.nightly if self.nightly is not None else self.gate
        if tier == "nightly":
            return largest or {}
        if tier == "gate" and self.gate is not None:
            return self.gate
        return (self.small if self.small is not None else self.gate if self.gate is not None else largest) or {}


def case(name, protects, **options):
    """Registers a function as a case.

    name            dotted, unique: `path.killed`
    protects        what must hold, one sentence
    gate, nightly   the function's keyword arguments in either tier; without `gate` the case is nightly only,
                    without `nightly` both are the same
    area, small     `--changed AREA` runs the case with these arguments, also when it is nightly only
    limit           seconds until the case is killed; `nightly_limit` if it is larger than in the gate
    attempts        runs of a case that raises Missed
    informational   a Missed is reported and never a failure; such a case runs alone
    alone           no other case runs at the same time
    root, guest     the case needs root, or the folder of the virtual machine; without them it is skipped
    tools           programs that must be installed
    """
    def register(function):
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = Case(function, name, protects, **options)
        return function
    return register


class Run:
    """The resources of one attempt of a case. All processes that it starts end with it."""

    def __init__(self, weir, folder, seed=1, guest=None):
        self.weir, self.folder, self.seed, self.guest = str(weir), pathlib.Path(folder), seed, guest
        self.stack, self.gateways = contextlib.ExitStack(), []

    @property
    def load_program(self):
        """The load generator that is built beside the gateway."""
        program = pathlib.Path(self.weir).parent / "iscsi-load"
        if not program.exists():
            raise Failed(f"{program} is not built: cargo build --release -p iscsi-load")
        return str(program)

    def defer(self, function, *arguments):
        self.stack.callback(function, *arguments)

    def spawn(self, *words, **options):
        """A process in the background, which ends at the latest with the case."""
        process = subprocess.Popen([str(word) for word in words], **{"stdin": subprocess.DEVNULL, **options})
        self.defer(end, process)
        return process

    def simulate(self, plan):
        """Results of `weir sim`. It may warn of contracts that are not met."""
        done = subprocess.run([self.weir, "sim", str(plan), "--json"], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise Failed(f"weir sim: status {done.returncode}: {done.stderr[-800:]}")
        return json.loads(done.stdout)["results"]

    def fresh(self, name):
        """An empty folder below the case's."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def memory(self):
        """A folder in memory, if there is space: a shared disk is slower than any model."""
        place = tempfile.mkdtemp(prefix="weir-conformance.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.defer(shutil.rmtree, place, True)
        return pathlib.Path(place)

    def image(self, name, mib):
        """An empty file of that size."""
        place = self.folder / name
        with open(place, "wb") as file:
            file.truncate(mib << 20)
        return place

    def noise(self, name, mib):
        """A file of random bytes."""
        place = self.folder / name
        with open(place, "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
        return place


def end(process, how=signal.SIGKILL):
    if process.poll() is None:
        process.send_signal(how)
    process.wait(60)


def ok(text):
    print(f"ok   {text}", flush=True)


def title(text):
    print(f"--- {text}", flush=True)


def output(*words, seconds=120, good=(0,), **options):
    """The output of a command, both streams together; its status must be one of `good`."""
    status, said = attempt(*words, seconds=seconds, **options)
    if status not in good:
        raise Failed(f"status {status} from: {shown(words)}\n{said[-2000:]}")
    return said


def attempt(*words, seconds=120, **options):
    """Status and output of a command; the status is None after a timeout."""
    try:
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds, check=False, **options)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace")


def shown(words):
    return " ".join(str(word) for word in words)[:300]


def expect(pattern, *words, **options):
    """The command must succeed and a line of its output must match."""
    said = output(*words, **options)
    if not re.search(pattern, said, re.M):
        raise Failed(f'no "{pattern}" from: {shown(words)}\n{said[-2000:]}')
    ok(f"{shown(words[:3])}: {pattern}")
    return said


def refuse(pattern, *words, status=None, **options):
    """The command must fail before the time limit, and a line of its output must match."""
    found, said = attempt(*words, **options)
    if found is None:
        raise Failed(f"no answer to: {shown(words)}")
    if found == 0 or status not in (None, found):
        raise Failed(f"status {found}, but must be refused: {shown(words)}\n{said[-2000:]}")
    if not re.search(pattern, said, re.M):
        raise Failed(f'refused without "{pattern}": {shown(words)}\n{said[-2000:]}')
    ok(f"{shown(words[:3])} is refused: {pattern}")
    return said


def until(condition, what, seconds=20, every=0.05):
    """Waits until the condition holds, and returns its value."""
    end_of_patience = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end_of_patience:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(every)
    return found


def same_files(one, other):
    with open(one, "rb") as first, open(other, "rb") as second:
        while True:
            piece, also = first.read(1 << 20), second.read(1 << 20)
            if piece != also:
                return False
            if not piece:
                return True


def percentile(values, share):
    """The value below which that share of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
