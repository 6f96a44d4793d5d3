#!/usr/bin/env python3
"""Measures writes to a volume whose log is full, beside a volume without a log.

    bench/full_log.py [--weir PROGRAM] [--depth NUMBER...] [--flush NUMBER...] [--seconds S] [--link MB] [--round-trip MS]
                      [--log memory] [--upstream weir]

A host keeps DEPTH random writes of 4 KiB outstanding and flushes after each FLUSH of them (0: never), alone and beside a
host that reads 4 KiB at random, four at once. Each cell takes two new gateways over a proxy to tgtd (or, with
`--upstream weir`, to a second gateway), in turn: without a log for SECONDS, with a log of 32 MiB from the moment it is
75 % full for five times SECONDS, and without a log once more. It prints the writes per second without the log, and those
with it in each SECONDS, in per cent of that. Exit status: 4 if one is below 95 %. Images are in memory, logs in $TMPDIR or
/tmp, or with `--log memory` in memory too: epochs are narrower the faster the log is.
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from conformance.harness.case import Run
from conformance.harness.iscsi import GOOD, Session, serve
from far import Reader, before_link, in_own_network, place

SIZE, LOG, PACED, WANTED = 4096, "32MiB", 0.75, 95
PERIODS = 5


class Writer:
    """Keeps `depth` random writes outstanding, and flushes after each `flush` of them."""

    def __init__(self, url, depth, flush):
        self.session, self.chance = Session(url, "iqn.2026-11.org.example:writer"), random.Random(1)
        self.depth, self.flush, self.out, self.begun, self.ended = depth, flush, 0, 0, 0
        self.data = os.urandom(SIZE)

    def done(self, status, _):
        if status != GOOD:
            raise SystemExit(f"a write ended with status {status:#x}")
        self.out -= 1
        self.ended += 1

    def flushed(self, status, _):
        if status != GOOD:
            raise SystemExit(f"a flush ended with status {status:#x}")

    def more(self):
        while self.out < self.depth:
            self.out += 1
            self.begun += 1
            self.session.write(place(self.chance, SIZE), self.data, self.done)
            if self.flush and self.begun % self.flush == 0:
                self.session.flush(self.flushed)


class Hosts:
    """The writer and, if wanted, the reader, served together."""

    def __init__(self, gateway, depth, flush, reads):
        self.writer = Writer(gateway.url(), depth, flush)
        self.reader = Reader(gateway.url()) if reads else None
        self.sessions = [self.writer.session] + ([self.reader.session] if reads else [])

    def run(self, seconds=None, over=lambda: False):
        """Runs for so long, or until `over()` holds; returns writes per second."""
        begin, before = time.monotonic(), self.writer.ended

        def more():
            self.writer.more()
            if self.reader:
                self.reader.more()
            return 0.1

        def ends():
            more()
            return over() or seconds is not None and time.monotonic() >= begin + seconds

        more()
        serve(self.sessions, ends, 120, more)
        return (self.writer.ended - before) / (time.monotonic() - begin)


def measure(options, depth, flush, reads, **volume):
    """Writes per second: without a log of one period, with a log of several from the moment it is paced."""
    with tempfile.TemporaryDirectory(prefix="weir-full-log.") as folder:
        run = Run(options.weir, folder)
        with run.stack:
            gateway, _ = before_link(run, options.upstream, options.link, options.round_trip,
                                     None if options.log == "memory" else run.folder, **volume)
            hosts = Hosts(gateway, depth, flush, reads)
            if not volume:
                hosts.run(1)
                return [hosts.run(options.seconds)]
            asked = [0.0, 0.0]

            def paced():
                if time.monotonic() > asked[0] + 0.1:
                    asked[:] = time.monotonic(), gateway.volume_log()["fill"]
                return asked[1] >= PACED
            hosts.run(None, paced)
            if not paced():
                raise SystemExit("the log is not full after 120 s: the upstream keeps up")
            return [hosts.run(options.seconds) for _ in range(PERIODS)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--weir", default=str(ROOT / "target/release/weir"))
    options.add_argument("--depth", nargs="+", type=int, default=[1, 8, 32])
    options.add_argument("--flush", nargs="+", type=int, default=[0, 32])
    options.add_argument("--seconds", type=float, default=4)
    options.add_argument("--link", type=float, default=0)
    options.add_argument("--round-trip", type=float, default=20)
    options.add_argument("--log", choices=["disk", "memory"], default="disk")
    options.add_argument("--upstream", choices=["tgtd", "weir"], default="tgtd")
    options = options.parse_args()
    in_own_network()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    link = f"{options.link:g} MB/s" if options.link else "no limit"
    print(f"{link}, {options.round_trip:g} ms, to {options.upstream}, log: {options.log}; load {os.getloadavg()[0]:.1f}; {options.seconds:g} s each")
    print(f"{'writes of 4 KiB':30} | {'without, before and after':>26} | with a full log, per cent", flush=True)
    worst = None
    for depth in options.depth:
        for flush in options.flush:
            for reads in (False, True):
                before, = measure(options, depth, flush, reads)
                full = measure(options, depth, flush, reads, log_size=LOG)
                after, = measure(options, depth, flush, reads)
                without = (before + after) / 2
                parts = [100 * one / without for one in full]
                worst = min(parts) if worst is None else min(worst, *parts)
                name = f"depth {depth}, {f'flush each {flush}' if flush else 'no flush'}{', reads' if reads else ''}"
                print(f"{name:30} | {before:12.0f}, {after:12.0f} | " + " ".join(f"{one:6.1f}" for one in parts), flush=True)
    print(f"the least is {worst:.1f} %")
    return 0 if worst >= WANTED else 4


sys.exit(main())
