"""kill -9 of the gateway, and power cuts, at random instants under verified random writes of several iSCSI hosts.

The volume has a write-back log on a local file and a slow upstream: tgtd behind a proxy that delays. Hosts write,
overwrite, unmap, flush and read back; after each restart every sector is read and must hold the last acknowledged write
or a later one. At the end the log is drained, and the target's file must have the data of the hosts. The workload of
hosts is in harness/hosts.py, the legal contents of a sector in harness/ledger.py.
"""

import os
import random

from ..harness.case import Failed, case, percentile
from ..harness.hosts import Hosts
from ..harness.recorded import Disk, entries
from ..harness.write_back import WriteBack

# Number of hosts, and sectors of the part of each: small, so that most writes overwrite earlier ones.
SESSIONS, SECTORS = 4, 4096
# Load before the gateway is killed, in seconds.
SHORTEST, LONGEST = 0.02, 0.9
# One of STARTS starts is killed before it is complete.
STARTS = 8
DEPTHS = [1, 2, 8, 32]
# Commands of hosts in a round, in percent: plain writes, FUA, WRITE SAME, UNMAP, flushes; the rest are reads. Each
# flush and each FUA costs destaging two round trips to the upstream: with many of them the log is always full.
SELDOM, OFTEN, UNFLUSHED = (74, 0.5, 5, 5, 0.5), (66, 6, 4, 4, 6), (93, 1, 1, 1, 1)
# Sessions of a killed gateway end within this time, in seconds.
SILENCE = 30
# One-way delay of the upstream, in seconds.
DELAY = 0.005


class Rounds:
    """Kills of one gateway; `early` if a write is acknowledged when it is durable in the log."""

    def __init__(self, run, ack, power):
        keys = {"ack": ack, "log_size": "64MiB", **({"log_io": "buffered"} if power else {})}
        self.rig, self.early, self.random = WriteBack(run, 16, **keys), ack == "log", random.Random(run.seed)
        self.rig.proxy("line", 0, 0, DELAY)
        self.hosts, self.gateway = Hosts(SESSIONS, SECTORS, self.early, run.seed), self.rig.gateway
        self.starts, self.killed_early, self.fates, self.disk, self.entries = [], 0, [0, 0, 0], None, 0
        if power:
            self.record(run)

    def record(self, run):
        """Moves the log to a disk whose power the case cuts."""
        self.gateway.start()
        self.gateway.stop()
        log = str(self.rig.log)
        os.rename(log, log + ".base")
        self.disk = Disk(run, log + ".base", log + ".record", log)
        self.disk.start()
        self.gateway.before_kill = self.power_fails

    def power_fails(self):
        """Cuts the power before the gateway closes its files, which would flush them."""
        self.entries = len(entries(self.disk.record))

    def cut_power(self):
        if self.disk:
            fates = self.disk.cut_power(self.random.random(), self.entries)
            self.fates = [sum(pair) for pair in zip(self.fates, fates)]
            self.disk.start()

    def one(self, number):
        if number and self.random.randrange(STARTS) == 0:
            self.gateway.start(kill_after=self.random.uniform(0, percentile(self.starts, 0.5)))
            self.cut_power()
            self.killed_early += 1
        self.starts.append(self.gateway.start())
        self.hosts.connect(self.gateway.url())
        self.verify(number)
        mix = self.random.choice((SELDOM, SELDOM, SELDOM, OFTEN)) if self.early else UNFLUSHED
        for writer in self.hosts.writers:
            writer.depth, writer.mix = self.random.choice(DEPTHS), mix
        # Until every host that writes has flushed, destaging is in strict order.
        if not self.early or self.random.randrange(8):
            self.hosts.flush()
        killer = self.gateway.kill_after(self.random.uniform(SHORTEST, LONGEST))
        try:
            self.hosts.run(SILENCE)
            if any(one.open for one in self.hosts.sessions()):
                raise Failed(f"sessions are still open {SILENCE} s after the kill")
        finally:
            killer.join()
        self.cut_power()

    def verify(self, number):
        wrong = self.hosts.settle()
        if wrong:
            raise Failed(f"after kill {number}, {len(wrong)} sectors: " + "; ".join(wrong[:3]))

    def last(self, number):
        """The last restart, a little more load, and a drain."""
        self.starts.append(self.gateway.start())
        self.hosts.connect(self.gateway.url())
        self.verify(number)
        self.hosts.run(0.5)
        self.hosts.finish()
        self.hosts.leave()
        took = self.gateway.drain()
        wrong = self.hosts.compare_file(self.rig.image)
        if wrong:
            raise Failed(f"the upstream image after the drain: {'; '.join(wrong[:3])}")
        self.gateway.stop()
        print(f"drained in {took:.2f} s, and the upstream image has the data of the hosts")

    def figures(self):
        hosts = self.hosts
        print(f"{len(self.starts) - 1} kills under load and {self.killed_early} during a start, {hosts.total('answered')} writes "
              f"acknowledged, {hosts.total('doubtful')} in doubt; {hosts.total('newer')} sectors had a write in doubt, "
              f"{hosts.total('lost')} had lost an acknowledged write{'' if self.early else ' that was not flushed'}")
        if self.disk:
            there, gone, torn = self.fates
            print(f"of the unflushed writes to the log, {there} were there after the cuts, {gone} were lost and {torn} torn")
        print(f"start to ready: p50 {percentile(self.starts, 0.5) * 1000:.0f} ms, longest {max(self.starts) * 1000:.0f} ms")


def crash(run, count, ack="log", power=False):
    rounds = Rounds(run, ack, power)
    try:
        number = 0
        # With `ack = "ram"` there are more rounds until one has lost something: not each kill finds unflushed writes.
        while number < count or (ack == "ram" and number < 5 * count and not rounds.hosts.total("lost")):
            rounds.one(number)
            number += 1
        rounds.last(number)
    finally:
        rounds.figures()
    if not rounds.hosts.total("answered"):
        raise Failed("no write was acknowledged: the case is inconclusive")
    if ack == "ram" and not rounds.hosts.total("lost"):
        raise Failed("no write was lost with `ack = \"ram\"`: the case cannot detect a loss")


LIMITS = {"limit": 240, "nightly_limit": 3600}
POWER = {**LIMITS, "root": True, "tools": ("tgtd", "tgtadm", "qemu-storage-daemon")}
case("crash.log", "no acknowledged write is lost when the gateway is killed", gate={"count": 3}, small={"count": 10}, nightly={"count": 500},
     area="write-back", tools=("tgtd", "tgtadm"), **LIMITS)(crash)
case("crash.power", "no acknowledged write is lost when the log's disk loses power", gate={"count": 3, "power": True},
     nightly={"count": 105, "power": True}, **POWER)(crash)
case("crash.ram", "with `ack = \"ram\"` a power cut loses unflushed writes, and never flushed ones",
     gate={"count": 3, "ack": "ram", "power": True}, nightly={"count": 20, "ack": "ram", "power": True}, **POWER)(crash)
