#!/usr/bin/env python3
"""Measures how fast a write-back log is destaged over a slow link, alone and beside reads, for each `order`.

    bench/destage.py [--weir PROGRAM] [--order WORD...] [--pattern NUMBER...] [--link MB] [--round-trip MS]
                     [--seconds S] [--runs NUMBER] [--upstream weir]

`--order default` writes no `order`, for programs that do not know the key.

It needs `ip`, `tc` and `unshare`. For each pattern of host writes, and each order of write-back, it starts a new gateway
over a slow link to tgtd (or, with `--upstream weir`, to a second gateway), writes a backlog while the proxy refuses connections, lets connections through
and measures how fast dirty data decreases, for SECONDS or until nothing is left. `beside` is the same while another
session reads 4 KiB at random, four at once, from a part of the volume that is not dirty. Images and logs are in memory. Figures
are medians of RUNS; the times of the reads are their 99th percentiles, without write-back and beside it.
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import time
from statistics import median

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from conformance.harness.case import Run, until
from conformance.harness.iscsi import GOOD, Session, serve
from far import MIB, Reader, before_link, in_own_network, place

# Bytes of a write, writes outstanding, writes between two flushes (0: none, -1: one flush first), MiB written.
PATTERNS = [
    ("4 KiB, no flush, depth 1", 4096, 1, 0, 24),
    ("4 KiB, no flush, depth 32", 4096, 32, 0, 48),
    ("4 KiB, flush each 32", 4096, 32, 32, 48),
    ("64 KiB, no flush, depth 8", 65536, 8, 0, 96),
    ("64 KiB, flush each 32", 65536, 32, 32, 96),
    ("64 KiB, one flush at first", 65536, 8, -1, 96),
]


def backlog(url, size, depth, flush, mib):
    """Writes at random to the first half of the volume; a flush waits for all writes before it."""
    session, chance = Session(url, "iqn.2026-11.org.example:writer"), random.Random(1)
    state = {"out": 0, "left": mib * MIB // size, "until_flush": flush if flush > 0 else 0, "flushing": False}

    def done(status, _):
        if status != GOOD:
            raise SystemExit(f"a write ended with status {status:#x}")
        state["out"] -= 1

    def flushed(status, _):
        done(status, _)
        state["flushing"] = False

    def begin_flush():
        state.update(flushing=True, until_flush=flush, out=state["out"] + 1)
        session.flush(flushed)

    def more():
        while not state["flushing"] and state["left"] and state["out"] < depth:
            if flush > 0 and state["until_flush"] == 0:
                if state["out"]:
                    break
                begin_flush()
                break
            state.update(left=state["left"] - 1, until_flush=state["until_flush"] - 1, out=state["out"] + 1)
            session.write(place(chance, size), os.urandom(8) * (size // 8), done)
        return 1.0

    if flush < 0:
        begin_flush()
    more()
    serve([session], lambda: more() and not state["out"] and not state["left"], 300, more)
    session.leave()


def measure(options, pattern, order, beside):
    """Bytes per second of write-back, and p99 of the reads in ms without and with it."""
    _, size, depth, flush, mib = pattern
    with tempfile.TemporaryDirectory(prefix="weir-destage.") as folder:
        run = Run(options.weir, folder)
        with run.stack:
            keys = {"order": order} if order else {}
            gateway, proxy = before_link(run, options.upstream, options.link, options.round_trip, log_size="512MiB", **keys)
            reader = Reader(gateway.url())
            # Meanwhile what bypassed a new log becomes durable upstream.
            reader.run(options.seconds if beside else 2)
            quiet = reader.p99()
            proxy("kill", 0)
            backlog(gateway.url(), size, depth, flush, mib)
            proxy("up", 0)
            until(lambda: gateway.volume_log()["storage"] == "up", "the upstream is back", 60, 0.02)
            time.sleep(0.3)
            if beside:
                # What was sent before the first read came is not beside reads.
                reader.run(0.5)
                reader.p99()
            begin, first = time.monotonic(), gateway.volume_log()["dirty_bytes"]
            if beside:
                last = [0.0]

                def clean():
                    if time.monotonic() < last[0] + 0.25:
                        return False
                    last[0] = time.monotonic()
                    return gateway.volume_log()["dirty_bytes"] == 0
                reader.run(options.seconds, clean)
            else:
                while time.monotonic() < begin + options.seconds and gateway.volume_log()["dirty_bytes"]:
                    time.sleep(0.05)
            took, left = time.monotonic() - begin, gateway.volume_log()["dirty_bytes"]
            return (first - left) / took, quiet, reader.p99() if beside else None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--weir", default=str(ROOT / "target/release/weir"))
    options.add_argument("--order", nargs="+", default=["auto", "flush"])
    options.add_argument("--pattern", nargs="+", type=int, default=list(range(1, len(PATTERNS) + 1)))
    options.add_argument("--link", type=float, default=20)
    options.add_argument("--round-trip", type=float, default=20)
    options.add_argument("--seconds", type=float, default=6)
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--upstream", choices=["tgtd", "weir"], default="tgtd")
    options = options.parse_args()
    in_own_network()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    print(f"link {options.link:g} MB/s, {options.round_trip:g} ms, to {options.upstream}; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{'backlog':28} {'order':6} | {'alone':>14} | {'beside reads':>14} {'p99 of reads':>15}", flush=True)
    for number in options.pattern:
        for order in options.order:
            pattern = PATTERNS[number - 1]
            runs = [[measure(options, pattern, order if order != "default" else None, beside) for _ in range(options.runs)]
                    for beside in (False, True)]
            alone = median(rate for rate, _, _ in runs[0])
            beside, quiet, p99 = (median(figures) for figures in zip(*runs[1]))
            share = [f"{rate / 1e6:5.2f} {rate / options.link / 1e4:5.1f} %" for rate in (alone, beside)]
            print(f"{pattern[0]:28} {order:6} | {share[0]:>14} | {share[1]:>14} {quiet:5.1f} -> {p99:5.1f} ms", flush=True)


main()
