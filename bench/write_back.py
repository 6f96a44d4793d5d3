#!/usr/bin/env python3
"""Reads of one host for write_back.sh: prints `bytes seconds p50 p99 upstream`, times in microseconds.

    write_back.py URL PROXY-SOCKET sequential|random|all BLOCKS DEPTH SECONDS

BLOCKS is the size of the unit in 512-byte blocks. `sequential` reads in order from the start, 64 KiB at a time, `random`
reads 4 KiB at random offsets, each for SECONDS; `all` reads the whole unit once. `upstream` is the bytes that the
upstream sent meanwhile.
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from conformance.harness.case import percentile
from conformance.harness.iscsi import GOOD, Session, serve
from conformance.harness.proxy import Proxy

PIECE, SMALL = 128, 8


def main():
    url, proxy, how, blocks, depth, seconds = sys.argv[1], Proxy(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:7])
    session, chance, took = Session("iscsi://" + url, "iqn.2026-11.org.example:reader"), random.Random(1), []
    state = {"out": 0, "next": 0, "bytes": 0}
    before, begin = proxy("counts")[0]["down"], time.monotonic()

    def done(status, length, sent):
        if status != GOOD:
            raise SystemExit(f"a read ended with status {status:#x}")
        took.append(time.monotonic() - sent)
        state["out"] -= 1
        state["bytes"] += length

    def over():
        return how == "all" and state["next"] >= blocks or how != "all" and time.monotonic() - begin >= seconds

    def more():
        while state["out"] < depth and not over():
            length = SMALL if how == "random" else PIECE
            at = chance.randrange(blocks // SMALL) * SMALL if how == "random" else state["next"] % blocks
            state["next"] += length
            session.read(at, length, lambda status, _, sent=time.monotonic(): done(status, length * 512, sent))
            state["out"] += 1
        return 1.0

    serve([session], lambda: over() and state["out"] == 0, None, more)
    length = time.monotonic() - begin
    upstream = proxy("counts")[0]["down"] - before
    print(state["bytes"], f"{length:.3f}", *(f"{percentile(took, share) * 1e6:.0f}" for share in (0.5, 0.99)), upstream)
    session.leave()


main()
