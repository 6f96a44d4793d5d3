"""An upstream volume over two paths to tgtd, which proxies kill, freeze and slow down under verified load.

Every case writes, reads and compares throughout, and at the end compares the target's file with the data written.
The duration of a request depends on the machine: the gate only prints such times; with --nightly they are a verdict,
after up to two repetitions.
"""

import asyncio
import random
import time

from ..harness.case import Failed, case
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.load import MANY, MIB, QEMU, RETURN_MAX, SINGLE, Load
from ..harness.nbd import BLOCK
from ..harness.proxy import FROM_CLIENT, Proxy
from ..harness.targets import Tgtd

TOOLS = ("tgtd", "tgtadm", "fio", "qemu-io")
# Maximum delay of a request by the loss of a path, and duration of the loss, in seconds.
STALL_MAX, LOST = 1.0, 4
# Maximum time from the return of the first path to the first completion, in seconds: without a working path each path
# is tried every second.
RESUME_MAX = 2.0
# `both`: duration of the freeze of the faster path, in seconds; no request may wait for its end.
HELD = 3
# `slow`: bytes per second and seconds of delay, in each direction, of a healthy path; both become worse by a factor
# of SLOWER. After LEAVE_MAX the path may carry LEFT of its steady share.
RATE, DELAY, SLOWER, LEAVE_MAX, LEFT = 20e6, 0.0005, 20, 1.0, 0.1
# A return causes a spike if a tenth of a second has more bytes than SPIKE times the steady share, or a request takes
# longer than LATE times the p99 before.
SPIKE, LATE = 1.5, 2.0


class Paths:
    """A gateway with the volume `disk`, the proxies of its two paths, and the target's file."""

    def __init__(self, run, report_after=None):
        self.image = run.image("disk.img", 256)
        target = Tgtd(run, self.image)
        self.proxy = Proxy.start(run, *target.portals)
        config = Config().nbd().volume(upstream="array").target()
        config.add("upstream", name="array", target=target.name, lun=target.lun, portals=self.proxy.portals)
        if report_after:
            config.section("limits", report_after=report_after)
        self.gateway = Gateway(run, config)
        self.gateway.start()

    def load(self):
        return Load(self.gateway.nbd, self.image)

    def list(self):
        return [path for path in self.gateway.ask("path.list")["paths"] if path["backend"] == "array"]

    def finish(self, load, timed):
        self.gateway.stop()
        if timed:
            load.judge()


def register(name, protects, work, gate=None, **options):
    """A case of two paths: `work(paths, load, ...)` is a coroutine; its keyword arguments are the sizes."""
    def run_it(run, timed=True, report_after=None, **sizes):
        async def whole():
            paths = Paths(run, report_after)
            load = paths.load()
            await work(paths, load, **sizes)
            return paths, load
        paths, load = asyncio.run(whole())
        paths.finish(load, timed)

    untimed = None if gate is None else {**gate, "timed": False}
    options = {"attempts": 3, "area": "paths", "tools": TOOLS, "limit": 300, "small": untimed, **options}
    case(f"path.{name}", protects, gate=untimed, **options)(run_it)


async def one_after_the_other(paths, load, faults):
    """Each path in turn is lost, by its own fault, and returns. No request waits for the return."""
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 16, 2, 0.01)
    fio, qemu = load.start(load.fio(16)), load.start(load.qemu_io(14))
    returned, held = [], 0
    for path, fault in enumerate(faults):
        await load.sleep(2.5)
        lost = paths.proxy(fault, path)
        await load.sleep(LOST)
        back = paths.proxy("up", path)
        returned.append(await load.in_use(paths.proxy, path))
        held += load.held(lost + 1, back)
    await qemu
    longest_fio = await fio
    total = await load.finish()
    print(f"{total} verified requests beside fio and qemu-io, no error; used again after "
          f"{' and '.join(f'{one:.1f} s' for one in returned)}")
    longest = max(load.longest(), longest_fio)
    print(f"longest request: {single.longest() * 1000:.0f} ms with one outstanding, {load.longest() * 1000:.0f} ms with "
          f"sixteen, {longest_fio * 1000:.0f} ms in fio; below {STALL_MAX * 1000:.0f} ms wanted")
    if held:
        raise Failed(f"{held} requests waited for the return of the lost path, although another path worked")
    load.want(longest < STALL_MAX, f"the longest request took {longest:.1f} s")


for kind, lost_by in (("killed", ("kill", "kill")), ("frozen", ("freeze", "mute"))):
    register(kind, f"a path that is {kind} delays no request and loses none, and is used again", one_after_the_other,
             gate={"faults": lost_by}, nightly={"faults": lost_by})


async def slow(paths, load):
    """One path becomes much slower, and recovers."""
    for path in (0, 1):
        paths.proxy("line", path, RATE, DELAY)
    # Requests of 4 to 256 KiB form bursts; here all bursts must come from the gateway.
    steady = await load.verifier(MANY, 32 * MIB, 16, 1, 0.018)
    steady.extent = lambda: (steady.random.randrange(steady.blocks // 4) * 4, 4)
    await load.sleep(2)
    begin = time.monotonic()
    await load.sleep(5)
    ill = paths.proxy("line", 0, RATE / SLOWER, DELAY * SLOWER)
    await load.sleep(5)
    said = paths.list()[0]
    print(f"weir path list: path 0 is {said['state']} ({said['why']}), "
          f"{time.monotonic() - said['since_ns'] / 1e9 - ill:.2f} s after it became slow")
    well = paths.proxy("line", 0, RATE, DELAY)
    await load.sleep(12)
    end = time.monotonic()
    await load.finish()
    judge_slow(paths.proxy, load, steady, begin, ill, well, end)


def judge_slow(proxy, load, steady, begin, ill, well, end):
    share = proxy.bytes_of(0, begin, ill)
    mean = sum(share) / len(share)
    # Bytes that the gateway sends on the path, before the proxy delays them.
    sent = proxy.bytes_of(0, begin, ill, (FROM_CLIENT,))
    during = proxy.bytes_of(0, ill, well, (FROM_CLIENT,))
    allowed = LEFT * sum(sent) / len(sent)
    # The first whole tenth begins up to a tenth after the fault.
    left = max((at + 2 for at, count in enumerate(during) if count > allowed), default=1) / 10
    rest = sum(during[int(LEAVE_MAX * 10):]) / max(1, len(during) - LEAVE_MAX * 10)
    # The proxy delays no more data when its buffer is empty.
    back = proxy.bytes_of(0, well + 0.2, end)
    latency = sorted(done - sent for sent, done in steady.done if begin < done < ill)
    p99 = latency[len(latency) * 99 // 100]
    returned = next((at for at in range(len(back)) if sum(back[at:at + 10]) >= mean * 5), len(back)) / 10
    worst = max(done - sent for sent, done in steady.done if sent > well + 0.2)
    print(f"{mean * 10 / 1e6:.2f} MB/s on the path, no tenth of a second above {max(share) / mean:.2f} of that; traffic left "
          f"after {left:.1f} s, then {rest * 10 / 1e3:.1f} kB/s were sent there; longest request then "
          f"{steady.longest(ill) * 1000:.0f} ms")
    print(f"used again after {returned:.1f} s, no tenth of a second above {max(back) / mean:.2f} of the share; p99 "
          f"{p99 * 1000:.1f} ms before, longest after {worst * 1000:.1f} ms")
    load.want(left <= LEAVE_MAX, f"traffic left the slow path after {left:.1f} s")
    load.want(returned <= RETURN_MAX, f"the path was used again after {returned:.1f} s")
    load.want(max(back) <= SPIKE * mean, "the return of the path caused a spike of bytes")
    load.want(worst <= LATE * p99, "the return of the path caused a spike of latency")


register("slow", "traffic leaves a path that becomes twenty times slower, and returns without a spike", slow, nightly={}, informational=True)


async def both(paths, load):
    """One path is so slow that it is not used; then the other is frozen."""
    for path in (0, 1):
        paths.proxy("line", path, RATE, DELAY)
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    many = await load.verifier(MANY, 32 * MIB, 16, 2, 0.018)
    for one in (single, many):
        one.extent = lambda one=one: (one.random.randrange(one.blocks // 4) * 4, 4)
    await load.sleep(2)
    paths.proxy("line", 0, RATE / SLOWER, DELAY * SLOWER)
    start = time.monotonic()
    while (state := paths.list()[0]["state"]) != "ejected":
        if time.monotonic() - start > 15:
            raise Failed(f"a path that is {SLOWER} times slower is {state}")
        await load.sleep(0.05)
    load.want(time.monotonic() - start < 5, "it took more than 5 s to eject the slow path")
    frozen = paths.proxy("freeze", 1)
    await load.sleep(HELD)
    found = [(path["state"], path["why"]) for path in paths.list()]
    up = paths.proxy("up", 1)
    paths.proxy("line", 0, RATE, DELAY)
    await load.in_use(paths.proxy, 1)
    total = await load.finish()
    # Requests on the remaining path queue there, at its low speed.
    most = STALL_MAX + 16 * 4 * BLOCK / (RATE / SLOWER) + 4 * DELAY * SLOWER
    print(f"{total} verified requests, no error; the slow path is {' '.join(found[0])}, the frozen one {' '.join(found[1])}; "
          f"longest request {single.longest(frozen) * 1000:.0f} ms with one outstanding, {many.longest(frozen) * 1000:.0f} ms "
          f"with sixteen; below {most * 1000:.0f} ms wanted")
    if found != [("active", "last left"), ("failed", "no answer")] or load.held(frozen, up):
        raise Failed(f"the paths are {found}, {load.held(frozen, up)} requests waited for the frozen path")
    load.want(load.longest() < most, f"the longest request took {load.longest():.1f} s")


register("both", "when the faster of two paths freezes, the slow one that was ejected takes over", both, nightly={}, informational=True)


async def gone(paths, load, hold):
    """All paths are lost for a while."""
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 16, 2)
    fio = load.start(load.fio(5))
    await load.sleep(2)
    for path in (0, 1):
        paths.proxy("kill", path)
    await load.sleep(1)
    before = [len(one.done) for one in load.verifiers]
    await load.sleep(hold - 1.5)
    if before != [len(one.done) for one in load.verifiers]:
        raise Failed("a request ended although there is no path")
    all_wait(paths, hold, sum(one.outstanding for one in load.verifiers))
    await load.sleep(0.5)
    paths.proxy("up", 1)
    back = time.monotonic()
    while single.longest(back) == 0.0:
        if time.monotonic() - back > 3 * RETURN_MAX:
            raise Failed(f"no request completes within {3 * RETURN_MAX:.0f} s of the return of a path")
        await load.sleep(0.01)
    resumed = time.monotonic() - back
    paths.proxy("up", 0)
    await load.in_use(paths.proxy, 0)
    await fio
    total = await load.finish()
    print(f"after {hold:.0f} s without a path the first request ends {resumed:.2f} s after one is back, below {RESUME_MAX:.0f} s "
          f"wanted; {total} verified requests, no error")
    load.want(resumed < RESUME_MAX, f"the first request ended {resumed:.1f} s after a path was back")


def all_wait(paths, hold, waiting):
    """`weir path list` and `weir status` report that no path works, and which requests wait."""
    found = paths.list()
    if [path["state"] for path in found] != ["failed", "failed"]:
        raise Failed(f"weir path list prints for two dead paths: {found}")
    status = paths.gateway.ask("status")["status"]
    stages = {stage["stage"]: stage for stage in status["stages"] if stage["count"]}
    oldest = max(stage["oldest_ns"] for stage in stages.values()) / 1e9
    named = [one for one in status["overdue"] if one["volume"] == "disk"]
    if sum(stage["count"] for stage in stages.values()) < waiting or oldest < hold - 2 or not named:
        raise Failed(f"weir status does not name {waiting} requests that wait: {stages}, {status['overdue']}")
    counts = ", ".join(f"{stage['count']} in {name}" for name, stage in stages.items())
    print(f"{waiting} verified requests wait; weir path list: {' and '.join(path['why'] for path in found)}; weir status: {counts}, "
          f"the oldest for {oldest:.1f} s, {len(named) + status['overdue_left_out']} overdue by name, the first a "
          f"{named[0]['op']} of {named[0]['length']} bytes at {named[0]['offset']}")


# Requests are named when they are overdue, which takes up to twice the 10 s of the default.
register("gone", "without a working path requests wait and `weir status` lists them; they complete when a path returns", gone,
         nightly={"hold": 60.0}, small={"hold": 10.0, "report_after": "3s", "timed": False}, limit=300)


async def flaps(paths, load, count, seed=5):
    """Paths fail and return, one or both at a time."""
    chance, proxy = random.Random(seed), paths.proxy
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    for number in range(4):
        await load.verifier(MANY + 8 * MIB * number, 2 * MIB, 8, number + 2, 0.005)
    # Many requests in one megabyte: most wait for an earlier one.
    await load.verifier(QEMU, MIB, 32, 6)
    kinds = {"kill": 0, "freeze": 0, "mute": 0, "slow": 0}
    for _ in range(count):
        kind = chance.choice(list(kinds))
        kinds[kind] += 1
        for path in chance.choice([[0], [0], [1], [1], [0, 1]]):
            proxy(*(("line", path, 200e3, 0.05) if kind == "slow" else (kind, path)))
        await load.sleep(chance.uniform(0.05, 1.2))
        for path in (0, 1):
            proxy("line", path, 0, 0)
            proxy("up", path)
        await load.sleep(chance.uniform(0.05, 0.6))
    # A flapping path may stay out of use for a minute, but not both paths.
    begin = time.monotonic()
    while "active" not in (states := [path["state"] for path in paths.list()]):
        if time.monotonic() - begin > RETURN_MAX:
            raise Failed(f"no path is in use after the flaps: {states}")
        await load.sleep(0.1)
    total, counts = await load.finish(), proxy("counts")
    print(f"{count} flaps ({', '.join(f'{count} {kind}' for kind, count in kinds.items())}), {counts[0]['connections']} and "
          f"{counts[1]['connections']} connections: {total} verified requests, none lost, doubled or out of order; the paths are "
          f"{' and '.join(states)}; longest request {load.longest():.1f} s, {single.longest():.1f} s with one outstanding")


register("flaps", "paths that fail and return lose, duplicate and reorder no request", flaps, nightly={"count": 100},
         small={"count": 25, "timed": False}, limit=400)


async def calm(paths, load, seconds):
    """Nothing fails; one request at a time, then many, of sizes that change."""
    await load.verifier(SINGLE, 2 * MIB, 1, 1)
    many = await load.verifier(MANY, 16 * MIB, 16, 2)
    sizes = [(1, 1), (16, 16), (1, 16), (4, 4)]
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        low, high = sizes[int(passed / 5) % len(sizes)]
        many.extent = lambda low=low, high=high: (many.random.randrange(many.blocks // high) * high,
                                                  many.random.choice([low, high]))
        await load.sleep(min(1.0, seconds))
    total = await load.finish()
    said = paths.gateway.said().splitlines()
    slow = [line for line in said if "state=ejected" in line]
    silent = [line for line in said if "no answer" in line]
    print(f"{total} verified requests in {seconds:.0f} s on two equal paths; {len(slow)} ejections, left {len(silent)} times as silent")
    if slow:
        raise Failed(f"a healthy path was ejected as slow: {slow[0]}")


register("calm", "two equal paths under load are used without an ejection while nothing fails", calm,
         nightly={"seconds": 1800.0}, small={"seconds": 30.0, "timed": False}, nightly_limit=2400)
