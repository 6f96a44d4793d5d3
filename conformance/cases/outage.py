"""A volume with a write-back log whose upstream, tgtd behind a proxy, does not answer or is slow."""

import random
import time

from ..harness.case import Failed, Missed, case, percentile, refuse, until
from ..harness.iscsi import BUSY, GOOD, TASK_SET_FULL, Session, serve
from ..harness.ledger import Ledger
from ..harness.write_back import WriteBack

HOSTS, BLOCK_SECTORS, MIB = 4, 16, 1 << 20
# Sectors per host.
PART = 16384
# MiB of the unit.
MIB_OF_UNIT = 320
# Delay before a host retries after BUSY, in seconds.
AGAIN = 0.1
# `away`: maximum fill of the log during the outage, and the one-way delay of the upstream, in seconds.
SHARE, DELAY = 0.5, 0.01
# `full`: bytes per second of the upstream, in each direction.
SLOW = 1e6
# A log counts as full from this fill on; writes slow down from 75 % on.
FULL = 0.75
# The ranges of a log's fill whose latencies are printed.
BANDS = [0.0, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 1.01]
# `reads`: bytes per second of the upstream in each direction, outstanding reads, bytes of their range, and seconds of
# a measurement; the p99 with a backlog may be WORSE times that without, and destaging must get SHARE_MIN of the link.
LINK, READERS, READ_OVER, MEASURED, WORSE, SHARE_MIN = 20e6, 4, 256 * MIB, 8, 1.5, 0.1


class Host:
    """Writes blocks of 8 KiB; outstanding writes are to different blocks; retries after BUSY."""

    def __init__(self, url, index, depth, every=0.0):
        self.session = Session(url, f"iqn.2026-11.org.example:host{index}")
        self.ledger, self.random = Ledger(index * PART, PART), random.Random(index)
        self.depth, self.every, self.due = depth, every, time.monotonic()
        self.taken, self.again, self.busy, self.running = set(), [], 0, True
        # When each write was sent and answered.
        self.done = []

    def tick(self):
        """Sends the writes that are due; returns the seconds until the next."""
        now = time.monotonic()
        while self.again and self.again[0][0] <= now:
            self.send(*self.again.pop(0)[1:])
        while self.running and len(self.taken) < self.depth and self.due <= now:
            block = self.random.randrange(PART // BLOCK_SECTORS)
            if block not in self.taken:
                self.taken.add(block)
                self.due = max(self.due + self.every, now - 1)
                number = self.ledger.write(block * BLOCK_SECTORS, BLOCK_SECTORS)
                self.send(block, number, now, self.random.random() < 0.02)
        waits = [self.again[0][0] - now] if self.again else []
        if self.running and len(self.taken) < self.depth:
            waits.append(self.due - now)
        return min(waits, default=1.0)

    def send(self, block, number, sent, forced):
        at = block * BLOCK_SECTORS

        def done(status, _):
            if status in (BUSY, TASK_SET_FULL):
                self.busy += 1
                self.again.append((time.monotonic() + AGAIN, block, number, sent, forced))
                return
            self.ledger.wrote(at, BLOCK_SECTORS, number, status)
            self.taken.discard(block)
            self.done.append((sent, time.monotonic()))

        self.session.write(self.ledger.first + at, self.ledger.data(at, BLOCK_SECTORS, number), done, forced)


class Hosts:
    """Several hosts on the volume of a rig."""

    def __init__(self, rig, depth, every=0.0):
        self.rig, self.gateway = rig, rig.gateway
        self.hosts = [Host(self.gateway.url(), index, depth, every) for index in range(HOSTS)]

    def work(self, seconds, also=None):
        """Hosts write for this time; `also()` is called every tenth of a second."""
        next_look = time.monotonic()

        def tick():
            nonlocal next_look
            now = time.monotonic()
            if also and now >= next_look:
                next_look = now + 0.1
                also()
            return min([one.tick() for one in self.hosts] + [0.1 if also else 1.0])

        sessions = [one.session for one in self.hosts]
        serve(sessions, lambda: False, seconds, tick)
        if not all(one.open for one in sessions):
            raise Failed("a session was lost")

    def finish(self, seconds):
        for one in self.hosts:
            one.running = False
        if not serve([one.session for one in self.hosts], lambda: not any(one.taken for one in self.hosts), seconds,
                     lambda: min(one.tick() for one in self.hosts)):
            raise Failed(f"{sum(len(one.taken) for one in self.hosts)} writes without an answer after {seconds} s")

    def settle(self):
        """After a kill: reads every part, which must have all acknowledged writes."""
        wrong = []
        for index, one in enumerate(self.hosts):
            ledger = one.ledger
            session, found = Session(self.gateway.url(), f"iqn.2026-11.org.example:host{index}"), {}
            for at in range(0, ledger.count, 512):
                session.read(ledger.first + at, 512, lambda status, data, at=at: found.__setitem__(at, (status, data.raw)))
            serve([session], lambda: not session.waiting)
            if any(status != GOOD for status, _ in found.values()):
                raise Failed("the volume cannot be read after the kill")
            wrong += ledger.settle(b"".join(found[at][1] for at in sorted(found)))
            session.leave()
        if wrong:
            raise Failed(f"after the kill, {len(wrong)} sectors: {'; '.join(wrong[:3])}")

    def compare(self):
        took = self.gateway.drain(seconds=900)
        with open(self.rig.image, "rb") as file:
            for one in self.hosts:
                ledger = one.ledger
                file.seek(ledger.first * 512)
                ledger.compare(0, ledger.wanted(0, ledger.count), file.read(ledger.count * 512))
        print(f"drained in {took:.1f} s; the upstream image has the data of the hosts")

    def told(self, what):
        latencies = [answered - sent for one in self.hosts for sent, answered in one.done]
        print(f"{what}: {len(latencies)} writes, {sum(one.busy for one in self.hosts)} times BUSY, no error; latency p50 "
              f"{percentile(latencies, 0.5) * 1000:.1f} ms, p99 {percentile(latencies, 0.99) * 1000:.1f} ms, longest "
              f"{max(latencies) * 1000:.0f} ms")

    def lost(self):
        """After a kill: every session ends, and with it the commands without an answer."""
        serve([one.session for one in self.hosts], lambda: False, 30)
        if any(one.session.open for one in self.hosts):
            raise Failed("a session is still open after the kill")

    def reconnect(self):
        """New sessions; the writes of the old ones stay in doubt."""
        for index, one in enumerate(self.hosts):
            one.session = Session(self.gateway.url(), f"iqn.2026-11.org.example:host{index}")
            one.taken, one.again, one.running, one.due = set(), [], True, time.monotonic()

    def read_back(self, since):
        """Reads every block of which each sector was written after the write of this number; returns their number."""
        blocks = 0
        for one, number in zip(self.hosts, since):
            ledger, found = one.ledger, {}
            for at in range(0, ledger.count, BLOCK_SECTORS):
                if min(ledger.acked[at:at + BLOCK_SECTORS]) > number:
                    one.session.read(ledger.first + at, BLOCK_SECTORS,
                                     lambda status, data, at=at, found=found: found.__setitem__(at, (status, data and data.raw)))
                    blocks += 1
            if not serve([one.session], lambda: not one.session.waiting, 60):
                raise Failed("a read of what the log has was not answered")
            for at, (status, data) in found.items():
                if status != GOOD:
                    raise Failed(f"a read of what the log has ended with status {status:#x}")
                ledger.compare(at, ledger.wanted(at, BLOCK_SECTORS), data)
        return blocks

    def again(self):
        """Clears the latencies."""
        for one in self.hosts:
            one.done = []


@case("outage.away", "hosts get no error during an outage of the upstream, and afterwards it has all of their writes",
      gate={"away_seconds": 5}, small={"away_seconds": 10}, nightly={"away_seconds": 600}, area="write-back", nightly_limit=1800, tools=("tgtd", "tgtadm"))
def away(run, away_seconds):
    """The target is killed under load, and its portal refuses connections for a while."""
    size = int(64 + 2 * away_seconds)
    rig = WriteBack(run, MIB_OF_UNIT, log_size=f"{size}MiB")
    rig.proxy("line", 0, 0, DELAY)
    rig.gateway.start()
    writes = size * MIB * SHARE / (BLOCK_SECTORS * 512 + 4096)
    hosts = Hosts(rig, 4, HOSTS * away_seconds / writes)
    hosts.work(3)
    hosts.told("upstream there")
    hosts.again()
    rig.target.kill()
    rig.proxy("kill", 0)
    fills = []
    hosts.work(away_seconds, lambda: fills.append(rig.gateway.volume_log()))
    said = fills[-1]
    hosts.told(f"upstream away for {away_seconds} s")
    paths = [(path["state"], path["why"]) for path in rig.gateway.ask("path.list")["paths"] if path["backend"] == "array"]
    print(f"weir path list: {paths[0][0]} ({paths[0][1]}); weir volume status: {said['dirty_bytes'] / MIB:.1f} MiB only in the "
          f"log, the oldest for {said['oldest_dirty_ns'] / 1e9:.0f} s, which is {max(one['fill'] for one in fills):.0%} full")
    if paths[0][0] != "failed" or not said["dirty_bytes"]:
        raise Failed(f"the gateway does not report the outage: {paths}, {said['dirty_bytes']} bytes only in the log")
    hosts.again()
    back(rig)
    hosts.work(3)
    hosts.finish(60)
    hosts.told("upstream back")
    hosts.compare()
    rig.gateway.stop()


def alone(gateway):
    """Checks that the gateway says that it has started without its upstream."""
    fence, log = gateway.volume()["fences"][0], gateway.volume_log()
    if (fence["state"], log["storage"]) != ("unclaimed", "away") or not fence["why"]:
        raise Failed(f"the gateway does not say that the upstream is away: {fence}, {log['storage']}")
    print(gateway.cli("volume", "status", "disk"))


@case("outage.alone", "a gateway that is killed with its upstream starts without it, and loses no acknowledged write",
      gate={"seconds": 2}, small={"seconds": 5}, nightly={"seconds": 60}, area="write-back", limit=240, nightly_limit=1200, tools=("tgtd", "tgtadm"))
def start_alone(run, seconds):
    """Gateway and target are killed together under load. The gateway starts alone, is killed again under load, and
    starts alone once more; then the target returns."""
    rig = WriteBack(run, MIB_OF_UNIT, {"connect_timeout": "1s"}, log_size=f"{int(64 + 16 * seconds)}MiB")
    rig.proxy("line", 0, 0, DELAY)
    rig.gateway.start()
    hosts = Hosts(rig, 4, 0.004)
    hosts.work(seconds)
    rig.gateway.kill()
    rig.target.kill()
    rig.proxy("kill", 0)
    hosts.lost()
    for _ in range(2):
        rig.gateway.start()
        alone(rig.gateway)
        hosts.reconnect()
        since = [one.ledger.number for one in hosts.hosts]
        hosts.work(seconds)
        hosts.finish(60)
        print(f"without the upstream, {hosts.read_back(since)} blocks are written and read back")
        for one in hosts.hosts:
            one.running = True
        hosts.work(0.2)
        rig.gateway.kill()
        hosts.lost()
    rig.gateway.start()
    # What the log does not have waits for the upstream.
    reader, found = Session(rig.gateway.url(), "iqn.2026-11.org.example:reader"), []
    reader.read(HOSTS * PART, BLOCK_SECTORS, lambda status, data: found.append((status, data.raw)))
    if serve([reader], lambda: found, 1):
        raise Failed(f"a read of what only the upstream has was answered without it: {found[0][0]:#x}")
    back(rig)
    if not serve([reader], lambda: found, 60) or found[0] != (GOOD, bytes(BLOCK_SECTORS * 512)):
        raise Failed(f"the read was not answered well when the upstream was back: {found and found[0][0]}")
    reader.leave()
    if rig.gateway.volume()["fences"][0]["state"] != "held":
        raise Failed(f"the unit is not claimed: {rig.gateway.volume()['fences']}")
    hosts.settle()
    hosts.compare()
    rig.gateway.stop()
    print(f"{sum(one.ledger.answered for one in hosts.hosts)} writes acknowledged, 3 kills, none is lost")


@case("outage.other", "a unit of another size that answers after a start without the upstream is refused, and nothing is written there",
      gate={}, area="write-back", tools=("tgtd", "tgtadm"))
def other_unit(run):
    """The target is killed, and comes back with another file first and then with its own one."""
    rig = WriteBack(run, MIB_OF_UNIT, {"connect_timeout": "1s", "reconnect_interval_max": "200ms"}, log_size="64MiB")
    rig.gateway.start()
    rig.gateway.stop()
    rig.target.kill()
    rig.proxy("kill", 0)
    # A clean stop has given the reservation up, so another gateway may own the unit since.
    refuse("no path to upstream", rig.gateway.weir, "serve", rig.gateway.file, status=7, seconds=60, cwd=rig.gateway.folder)
    back(rig)
    rig.gateway.start()
    rig.gateway.kill()
    rig.target.kill()
    rig.proxy("kill", 0)
    rig.gateway.start()
    alone(rig.gateway)
    hosts = Hosts(rig, 4)
    hosts.work(1)
    own, rig.target.image = rig.target.image, run.image("other.img", 64)
    back(rig)
    until(lambda: "number of blocks" in rig.gateway.said(), "the gateway refuses the unit", 30)
    hosts.work(1)
    if rig.gateway.volume()["fences"][0]["state"] != "unclaimed":
        raise Failed(f"the unit was claimed: {rig.gateway.volume()['fences']}")
    print(rig.gateway.cli("volume", "status", "disk"))
    rig.target.kill()
    rig.proxy("kill", 0)
    with open(rig.target.image, "rb") as file:
        if any(file.read()):
            raise Failed("the other unit was written to")
    rig.target.image = own
    back(rig)
    hosts.finish(60)
    hosts.compare()
    rig.gateway.stop()


def back(rig):
    """The target returns."""
    rig.target.start()
    rig.proxy("to", 0, rig.target.portals[0])
    rig.proxy("up", 0)


@case("outage.full", "a full log slows hosts down without an error, and a kill then loses no data",
      nightly={"pressed": 40}, small={"pressed": 15}, area="write-back", limit=300, nightly_limit=1200, tools=("tgtd", "tgtadm"))
def full(run, pressed):
    """Hosts write much faster than the upstream, into a small log."""
    rig = WriteBack(run, MIB_OF_UNIT, log_size="16MiB")
    rig.proxy("line", 0, SLOW, DELAY)
    rig.gateway.start()
    hosts, fills = Hosts(rig, 8), []
    hosts.work(pressed, lambda: fills.append((time.monotonic(), rig.gateway.volume_log())))
    hosts.told("log full")
    rows, at = [[] for _ in BANDS], 0
    done = sorted((sent, answered) for one in hosts.hosts for sent, answered in one.done)
    for sent, answered in done:
        while at + 1 < len(fills) and fills[at + 1][0] <= sent:
            at += 1
        fill = fills[at][1]["fill"]
        rows[max(band for band, least in enumerate(BANDS) if fill >= least)].append(answered - sent)
    for band, row in enumerate(rows[:-1]):
        if row:
            print(f"  fill {BANDS[band]:4.0%} to {min(BANDS[band + 1], 1):4.0%}: {len(row):6} writes, p50 "
                  f"{percentile(row, 0.5) * 1000:8.1f} ms, p99 {percentile(row, 0.99) * 1000:8.1f} ms")
    fullest = max(one["fill"] for _, one in fills)
    print(f"the fullest was {fullest:.1%}")
    if fullest < FULL:
        raise Failed(f"the log was at most {fullest:.0%} full: the case is inconclusive")
    rig.gateway.kill()
    serve([one.session for one in hosts.hosts], lambda: False, 30)
    took = rig.gateway.start()
    hosts.settle()
    print(f"killed with a full log, {took * 1000:.0f} ms from start to ready: no acknowledged write is lost")
    rig.proxy("line", 0, 0, DELAY)
    hosts.compare()
    rig.gateway.stop()


@case("outage.reads", "reads keep their latency while a backlog is destaged, and destaging gets its share of the link",
      nightly={"backlog": 128}, informational=True, attempts=3, tools=("tgtd", "tgtadm"))
def reads(run, backlog):
    """Reads of one host while a large backlog is destaged."""
    rig, backlog = WriteBack(run, backlog + 320, log_size=f"{backlog * 3 // 2 + 64}MiB"), backlog * MIB
    rig.proxy("line", 0, LINK, DELAY)
    rig.gateway.start()
    session, chance = Session(rig.gateway.url(), "iqn.2026-11.org.example:reader"), random.Random(1)
    first = measure(session, chance, backlog, MEASURED, lambda: True)
    rig.proxy("kill", 0)
    begin = time.monotonic()
    fill(session, backlog)
    log = rig.gateway.volume_log()
    print(f"{log['dirty_bytes'] / MIB:.0f} MiB only in the log after {time.monotonic() - begin:.1f} s")
    rig.proxy("up", 0)
    while rig.gateway.volume_log()["storage"] != "up":
        time.sleep(0.1)
    before = rig.gateway.volume_log()
    begin = time.monotonic()
    second = measure(session, chance, backlog, MEASURED, lambda: rig.gateway.volume_log()["dirty_bytes"] > 0)
    after = rig.gateway.volume_log()
    rate = (before["dirty_bytes"] - after["dirty_bytes"]) / (time.monotonic() - begin)
    p99 = [percentile(one, 0.99) * 1000 for one in (first, second)]
    print(f"reads of 4 KiB, {READERS} outstanding: without a backlog {len(first)} in {MEASURED} s, p50 "
          f"{percentile(first, 0.5) * 1000:.1f} ms, p99 {p99[0]:.1f} ms; with one {len(second)}, p50 "
          f"{percentile(second, 0.5) * 1000:.1f} ms, p99 {p99[1]:.1f} ms, {p99[1] / p99[0]:.2f} times; meanwhile "
          f"{rate / 1e6:.2f} MB/s were written back, {rate / LINK:.0%} of the link, {after['dirty_bytes'] / MIB:.0f} MiB are left")
    session.leave()
    rig.gateway.stop()
    if not second:
        raise Failed("the backlog was destaged before the first read: it has to be larger")
    if p99[1] > WORSE * p99[0] or rate < SHARE_MIN * LINK:
        raise Missed(f"p99 is {p99[1] / p99[0]:.2f} times that without a backlog; write-back has {rate / LINK:.0%} of the link")


def fill(session, bytes_):
    """Writes this amount from the start of the volume, in 64 KiB."""
    data, state = bytes(range(256)) * 256, {"next": 0, "out": 0}

    def done(status, _):
        if status != GOOD:
            raise Failed(f"a write ended with status {status:#x}")
        state["out"] -= 1

    def more():
        while state["out"] < 16 and state["next"] < bytes_:
            session.write(state["next"] // 512, data, done)
            state["next"] += len(data)
            state["out"] += 1
        return 1.0

    serve([session], lambda: state["out"] == 0 and state["next"] >= bytes_, None, more)


def measure(session, chance, first, seconds, goes_on):
    """Random reads behind `first`; returns their latencies."""
    took, state = [], {"out": 0, "until": time.monotonic() + seconds, "look": time.monotonic()}

    def more():
        now = time.monotonic()
        if now >= state["look"]:
            state["look"] = now + 0.5
            if not goes_on():
                state["until"] = now
        while state["out"] < READERS and now < state["until"]:
            lba = (first + chance.randrange(READ_OVER // 4096) * 4096) // 512
            session.read(lba, 8, lambda status, _, sent=time.monotonic(): done(status, sent))
            state["out"] += 1
        return 0.5

    def done(status, sent):
        if status != GOOD:
            raise Failed(f"a read ended with status {status:#x}")
        took.append(time.monotonic() - sent)
        state["out"] -= 1

    serve([session], lambda: state["out"] == 0 and time.monotonic() >= state["until"], None, more)
    return took
