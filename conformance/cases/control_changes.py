"""A contract that is changed while hosts work, live.

A host with a contract reads 4 KiB at random at Poisson times over iSCSI from a modelled array, beside a host that keeps
64 reads of 64 KiB outstanding. First nothing changes, then the other tenant's contract changes every half second: the
first host must see as many requests beyond its objective as before, within one per cent. Then its own objective changes
between 30 and 15 ms: in the second after a change its p99 may be twice the promise.
"""

import random
import statistics
import time

from ..harness.case import Missed, case, ok, percentile
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.iscsi import GOOD, Session, serve

# Requests per second of the host and of its contract; milliseconds of its objective, and of the one that it changes to.
RATE, PROMISED, OBJECTIVE, SHORT = 600, 800, 30, 15
DEPTH, BLOCKS = 64, 128
WARM_UP, HALF_SECOND, OWN_EVERY = 5, 0.5, 4
# Requests beyond the objective, in per cent: what the objective allows, and what a neighbour's changes may add.
BEYOND, ADDED = 1.0, 1.0
# Per cent of the promise in the second after a change of one's own.
AFTER = 200
# The two contracts of the neighbour.
NEIGHBOUR = [{"size": "64KiB", "iops": iops, "p99": f"{time}ms"} for iops, time in ((100, 100), (200, 60))]


def objective(millis):
    return [{"size": "4KiB", "iops": PROMISED, "p99": f"{millis}ms"}]


class Host:
    """Reads at Poisson times. `times` has when each request was due, and how long it took from then, in seconds."""

    def __init__(self, url, size):
        self.session, self.chance, self.times = Session(url, "iqn.2026-11.org.example:victim"), random.Random(1), []
        self.due, self.places = time.monotonic(), size // 4096

    def more(self):
        while (left := self.due - time.monotonic()) <= 0:
            begin = self.due
            self.session.read(8 * self.chance.randrange(self.places), 8, lambda status, _, begin=begin: self.done(status, begin))
            self.due += self.chance.expovariate(RATE)
        return left

    def done(self, status, begin):
        if status != GOOD:
            raise Missed(f"a read ended with status {status:#x}")
        self.times.append((begin, time.monotonic() - begin))

    def run(self, seconds, every=None, change=None):
        """Reads for so long, and calls `change` each `every` seconds; the time of each call."""
        begin, called, self.times = time.monotonic(), [], []

        def tick():
            now = time.monotonic()
            if every and now >= begin + every * (len(called) + 1):
                called.append(now)
                change()
            return self.more()
        serve([self.session], lambda: False, seconds, tick)
        return called

    def beyond(self, millis):
        """The share of requests that took longer, in per cent."""
        return 100 * sum(took > millis / 1e3 for _, took in self.times) / len(self.times)


def changes(run, seconds):
    memory, size = run.memory(), 1 << 30
    config = Config().section("policy", control="slack").add("backend", name="array", model="array-m1")
    config.section("limits", max_requests=32768)
    config.add("tenant", name="victim", objectives=objective(OBJECTIVE)).add("tenant", name="neighbour", objectives=NEIGHBOUR[:1])
    for name in ("victim", "neighbour"):
        with open(memory / name, "wb") as file:
            file.truncate(size)
        config.volume(name, file=memory / name, size="1GiB", io="buffered", backend="array")
    gateway = Gateway(run, config.target("victim", "neighbour"))
    gateway.start()
    run.spawn("iscsi-perf", "-r", "-m", DEPTH, "-b", BLOCKS, "-t", 4 * seconds + 60, gateway.url(lun=1),
              stdout=open(run.folder / "neighbour", "wb"))
    host, turn = Host(gateway.url(), size), 0

    def change(name, objectives):
        nonlocal turn
        turn += 1
        config.change("tenant", name, objectives=objectives[turn % 2])
        gateway.reload()

    host.run(WARM_UP)
    seen = []
    for _ in range(2):
        host.run(seconds)
        calm = host.beyond(OBJECTIVE)
        host.run(seconds, HALF_SECOND, lambda: change("neighbour", [NEIGHBOUR[:1], NEIGHBOUR[1:]]))
        seen.append((calm, host.beyond(OBJECTIVE)))
    own = {SHORT: [], OBJECTIVE: []}
    turn = 0
    called = host.run(seconds, OWN_EVERY, lambda: change("victim", [objective(OBJECTIVE), objective(SHORT)]))
    for index, at in enumerate(called):
        times = [took for due, took in host.times if at <= due < at + 1]
        own[OBJECTIVE if index % 2 else SHORT].append(1e3 * percentile(times, 0.99))
    gateway.stop()
    faults = []
    for calm, changed in seen:
        print(f"beyond {OBJECTIVE} ms: {calm:.2f} % without changes, {changed:.2f} % while the neighbour's contract changes")
        if changed > max(calm, BEYOND) + ADDED:
            faults.append(f"{changed:.2f} % beyond {OBJECTIVE} ms while a neighbour's contract changes")
    for promise, took in own.items():
        print(f"the second after a change to {promise} ms: p99 {', '.join(f'{one:.1f}' for one in took)} ms")
        if statistics.median(took) > promise * AFTER / 100:
            faults.append(f"p99 {statistics.median(took):.1f} ms in the second after a change to {promise} ms")
    if faults:
        raise Missed("; ".join(faults))
    ok("a change of a contract costs no other tenant, and acts at once")


case("control.changes", "a change of one tenant's contract costs no other tenant, and its own change acts within a second",
     nightly={"seconds": 30}, attempts=3, informational=True, tools=("iscsi-perf",))(changes)
