#!/usr/bin/env python3
"""kill -9 of the gateway, and power cuts, at random instants under verified random writes: see ../crash.sh.

Prints figures and a verdict. Status 0: as it must be; 1: something was lost, came back or was refused.
"""

import argparse
import os
import random
import sys
import time

from gateway import Gateway, Proxy
from iscsi import Broken, Refused
from load import Hosts, percentile
from recorded import Disk, entries

# Hosts, and the sectors of the part of each: small, so that most writes are over earlier ones.
SESSIONS, SECTORS = 4, 4096
# How long hosts work before the gateway is killed, in seconds.
SHORTEST, LONGEST = 0.02, 0.9
# One start in so many is killed before it is over.
STARTS = 8
DEPTHS = [1, 2, 8, 32]
# What hosts do in a round, in percent: plain writes, FUA, WRITE SAME, UNMAP, flushes; the rest are reads. Each flush
# and each FUA is two round trips of the upstream for the write-back: with many of them the log is always full.
SELDOM, OFTEN, UNFLUSHED = (74, 0.5, 5, 5, 0.5), (66, 6, 4, 4, 6), (93, 1, 1, 1, 1)
# A killed gateway's sessions end within so many seconds.
SILENCE = 30


class Rounds:
    def __init__(self, options, early):
        self.options, self.early, self.random = options, early, random.Random(options.seed)
        self.hosts = Hosts(SESSIONS, SECTORS, early, options.seed)
        self.gateway = Gateway(options)
        self.starts, self.killed_early, self.fates = [], 0, [0, 0, 0]
        self.disk, self.entries = None, 0

    def recorded(self):
        """From now on the log is on a disk whose power is cut."""
        log = self.options.volume_log
        self.gateway.start()
        self.gateway.stop()
        os.rename(log, log + ".base")
        self.disk = Disk(log + ".base", log + ".record", log)
        self.disk.start()
        self.gateway.before_kill = self.power

    def power(self):
        """Closing its files would flush them: the power fails before that."""
        self.entries = len(entries(self.disk.record))

    def cut_power(self):
        if self.disk:
            fates = self.disk.cut_power(self.random.random(), self.entries)
            self.fates = [sum(pair) for pair in zip(self.fates, fates)]
            self.disk.start()

    def one(self, number):
        if number and self.random.randrange(STARTS) == 0:
            usual = percentile(self.starts, 0.5)
            self.gateway.start(kill_after=self.random.uniform(0, usual))
            self.cut_power()
            self.killed_early += 1
        self.starts.append(self.gateway.start())
        self.hosts.connect(self.gateway.url)
        self.verify(number)
        mix = self.random.choice((SELDOM, SELDOM, SELDOM, OFTEN)) if self.early else UNFLUSHED
        for writer in self.hosts.writers:
            writer.depth, writer.mix = self.random.choice(DEPTHS), mix
        # Until every host that writes has flushed, the order is strict.
        if not self.early or self.random.randrange(8):
            self.hosts.flush()
        killer = self.gateway.kill_after(self.random.uniform(SHORTEST, LONGEST))
        try:
            self.hosts.run(SILENCE)
            if any(one.open for one in self.hosts.sessions()):
                raise Broken(f"sessions are still open {SILENCE} s later")
        finally:
            killer.join()
        self.cut_power()

    def verify(self, number):
        wrong = self.hosts.settle()
        if wrong:
            raise Broken(f"after kill {number}, {len(wrong)} sectors: " + "; ".join(wrong[:3]))

    def last(self):
        """The last restart, a little more work, and everything goes upstream."""
        self.starts.append(self.gateway.start())
        self.hosts.connect(self.gateway.url)
        self.verify(self.options.rounds)
        self.hosts.run(0.5)
        self.hosts.finish()
        self.hosts.leave()
        took = self.gateway.drain(300)
        wrong = self.hosts.compare_file(self.options.file)
        if wrong:
            raise Broken(f"the upstream image after the drain: {'; '.join(wrong[:3])}")
        self.gateway.stop()
        return took

    def end(self):
        process = self.gateway.process
        if process and process.poll() is None:
            process.kill()
            process.wait()
        if self.disk:
            self.disk.stop()


def main():
    parser = argparse.ArgumentParser()
    for name in ("weir", "config", "log", "control", "file", "proxy", "target", "work"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--delay", type=float, required=True, help="of the upstream, each way, in seconds")
    parser.add_argument("--volume-log", help="with a power cut of the disk with this log at each kill")
    parser.add_argument("--must-lose", action="store_true", help="the negative control, with `ack = \"ram\"`")
    options = parser.parse_args()
    Proxy(options.proxy)("line", 0, 0, options.delay)
    rounds, broken = Rounds(options, not options.must_lose), None
    begin, hosts, drained = time.monotonic(), rounds.hosts, 0.0
    try:
        if options.volume_log:
            rounds.recorded()
        for number in range(options.rounds):
            rounds.one(number)
        drained = rounds.last()
        if rounds.gateway.panicked():
            raise Broken("the gateway panicked")
        if options.must_lose and not hosts.total("lost"):
            raise Broken("nothing was lost with `ack = \"ram\"`: this check cannot see a loss")
    except (Broken, Refused) as error:
        broken = error
    finally:
        rounds.end()
    print(f"{len(rounds.starts) - 1} kills under load and {rounds.killed_early} while it started, {hosts.total('answered')} writes "
          f"acknowledged, {hosts.total('doubtful')} in doubt; {hosts.total('newer')} sectors had a write in doubt, "
          f"{hosts.total('lost')} had lost an acknowledged write{' that was not flushed' if options.must_lose else ''}")
    if options.volume_log:
        there, gone, torn = rounds.fates
        print(f"of the unflushed writes to the log, {there} were there after the cuts, {gone} were lost and {torn} torn")
    print(f"start to ready: p50 {percentile(rounds.starts, 0.5) * 1000:.0f} ms, longest {max(rounds.starts) * 1000:.0f} ms")
    if broken:
        print(f"FAIL seed {options.seed}, at start {len(rounds.starts)}: {broken}", flush=True)
        sys.exit(1)
    print(f"drained in {drained:.2f} s, and the upstream image is what the hosts wrote")
    print(f"ok   {options.rounds} kills in {time.monotonic() - begin:.0f} s, seed {options.seed}", flush=True)


main()
