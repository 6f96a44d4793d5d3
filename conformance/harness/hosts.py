"""Hosts that write, read and compare, each in a separate part of the volume."""

import random
import time

from .case import Failed
from .iscsi import GOOD, LOST, Session, serve
from .ledger import Ledger, REPEATED, STAMPED, ZEROES

# Sectors of a write, mostly small, up to 64 KiB; of a WRITE SAME, and of an UNMAP.
SIZES = [1, 1, 1, 2, 3, 4, 5, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 16, 17, 32, 64, 128]
REPEATS = [1, 8, 8, 16, 33, 128]
# Sectors of one read when a whole part is read.
PIECE = 512


class Writer:
    """One session that keeps `depth` commands outstanding, which overlap each other and earlier ones.

    `mix` is the distribution of commands, in percent: plain writes, FUA, WRITE SAME, UNMAP, flushes; the rest are reads.
    """

    def __init__(self, ledger, seed, depth=8, mix=(80, 0, 0, 0, 0)):
        self.ledger, self.random, self.depth, self.mix = ledger, random.Random(seed), depth, mix
        self.session, self.running, self.outstanding = None, False, 0
        # When each command was sent and answered, and what it was.
        self.done = []

    def connect(self, url, name):
        self.session = Session(url, name)

    def begin(self):
        self.running = True
        for _ in range(self.depth):
            self.next()

    def next(self):
        if not self.running or self.session.lost:
            return
        self.outstanding += 1
        at, ledger = time.monotonic(), self.ledger
        what = self.random.uniform(0, 100)
        for name, share in zip(("plain", "forced", "same", "unmap", "flush"), self.mix):
            if what < share:
                break
            what -= share
        else:
            name = "read"
        if name == "flush":
            before = ledger.flushing()
            self.session.flush(lambda status, _: self.ended(at, name, ledger.flushed(before, status)))
            return
        first, count = self.extent(REPEATS if name in ("same", "unmap") else SIZES)
        if name == "read":
            wanted = ledger.wanted(first, count)
            self.session.read(ledger.first + first, count, lambda status, found: self.ended(
                at, name, self.came(first, wanted, status, found)))
            return
        kind = {"unmap": ZEROES, "same": self.random.choice((ZEROES, REPEATED))}.get(name, STAMPED)
        number = ledger.write(first, count, kind)
        forced = name == "forced"

        def done(status, _):
            self.ended(at, name, ledger.wrote(first, count, number, status, forced))

        where = ledger.first + first
        if name == "unmap":
            self.session.unmap(where, count, done)
        elif name == "same":
            self.session.write_same(where, count, ledger.data(first, 1, number), done)
        else:
            self.session.write(where, ledger.data(first, count, number), done, forced)

    def extent(self, sizes):
        count = min(self.random.choice(sizes), self.ledger.count)
        first = self.random.randrange(self.ledger.count - count + 1)
        if self.random.random() < 0.5:
            first = first // 8 * 8
        return first, count

    def came(self, first, wanted, status, found):
        if status in LOST:
            return
        if status != GOOD:
            raise Failed(f"a read ended with status {status:#x}")
        self.ledger.compare(first, wanted, found.raw)

    def ended(self, sent, name, _=None):
        self.outstanding -= 1
        self.done.append((sent, time.monotonic(), name))
        self.next()

    def all(self, then):
        """Reads the whole part, and passes it on when it is complete."""
        pieces, count = {}, self.ledger.count
        for at in range(0, count, PIECE):
            def done(status, found, at=at):
                if status != GOOD:
                    raise Failed(f"the read of sector {self.ledger.first + at} ended with status {status:#x}")
                pieces[at] = found.raw
                if len(pieces) == -(-count // PIECE):
                    then(b"".join(pieces[one] for one in sorted(pieces)))
            self.session.read(self.ledger.first + at, min(PIECE, count - at), done)


class Hosts:
    """Several of them."""

    def __init__(self, sessions, sectors, early=True, seed=0):
        self.writers = [Writer(Ledger(index * sectors, sectors, early), seed * 1000 + index)
                        for index in range(sessions)]

    def sessions(self):
        return [one.session for one in self.writers]

    def connect(self, url):
        for index, one in enumerate(self.writers):
            one.connect(url, f"iqn.2026-11.org.example:host{index}")

    def run(self, seconds):
        """Runs the load for this time; ends early if all sessions are lost."""
        for one in self.writers:
            one.begin()
        serve(self.sessions(), lambda: False, seconds)

    def finish(self, seconds=120):
        """Stops the load and waits for outstanding commands."""
        for one in self.writers:
            one.running = False
        if not serve(self.sessions(), lambda: not any(one.outstanding for one in self.writers), seconds):
            raise Failed(f"{sum(one.outstanding for one in self.writers)} commands without an answer after {seconds} s")

    def leave(self):
        for one in self.writers:
            one.session.leave()

    def flush(self):
        ended = []
        for one in self.writers:
            before = one.ledger.flushing()
            one.session.flush(lambda status, _, one=one, before=before: ended.append(one.ledger.flushed(before, status)))
        if not serve(self.sessions(), lambda: len(ended) == len(self.writers)):
            raise Failed("a flush has no answer")

    def read_all(self):
        """The contents of each part."""
        found = {}
        for index, one in enumerate(self.writers):
            one.all(lambda data, index=index: found.__setitem__(index, data))
        if not serve(self.sessions(), lambda: len(found) == len(self.writers), 120):
            raise Failed("the volume cannot be read")
        return [found[index] for index in range(len(self.writers))]

    def settle(self):
        """After a kill: reads all parts, and returns the errors."""
        return [fault for one, found in zip(self.writers, self.read_all()) for fault in one.ledger.settle(found)]

    def compare_file(self, path):
        """The upstream image must have the data written."""
        wrong = []
        with open(path, "rb") as file:
            for one in self.writers:
                ledger = one.ledger
                file.seek(ledger.first * 512)
                found = file.read(ledger.count * 512)
                try:
                    ledger.compare(0, ledger.wanted(0, ledger.count), found)
                except Failed as failed:
                    wrong.append(str(failed))
        return wrong

    def total(self, what):
        return sum(getattr(one.ledger, what) for one in self.writers)
