"""A gateway before a slow link to a target in memory, and a host that reads, for destage.py and full_log.py.

The kernel limits the rate of the link (`tc`, in a network namespace of its own), and a proxy adds the delay. A proxy that
limits the rate, too, passes too much at once after each pause, because it wakes up late.
"""

import os
import random
import subprocess
import sys
import time

from conformance.harness.case import TARGET, percentile
from conformance.harness.config import Config
from conformance.harness.gateway import Gateway
from conformance.harness.iscsi import GOOD, Session, serve
from conformance.harness.proxy import Proxy
from conformance.harness.targets import Tgtd

MIB = 1 << 20
# MiB of the volume: writes go to the first half, reads to the second.
VOLUME = 256
READS = 4


def place(chance, size, half=0):
    """A random block address of a piece of `size` bytes in one half of the volume."""
    return (half * VOLUME // 2 * MIB + chance.randrange(VOLUME // 2 * MIB // size) * size) // 512


class Reader:
    """Reads of 4 KiB at random from the second half of the volume."""

    def __init__(self, url):
        self.session, self.chance, self.took, self.out = Session(url, "iqn.2026-11.org.example:reader"), random.Random(2), [], 0

    def more(self):
        while self.out < READS:
            begin = time.monotonic()
            self.out += 1
            self.session.read(place(self.chance, 4096, 1), 8, lambda status, _, begin=begin: self.done(status, begin))
        return 0.2

    def done(self, status, begin):
        if status != GOOD:
            raise SystemExit(f"a read ended with status {status:#x}")
        self.out -= 1
        self.took.append(time.monotonic() - begin)

    def run(self, seconds, over=lambda: False):
        """Reads for so long, or until `over()` holds."""
        end = time.monotonic() + seconds
        self.more()
        serve([self.session], lambda: self.more() and (time.monotonic() >= end or over()), seconds + 1, self.more)

    def p99(self):
        took, self.took = self.took, []
        return percentile(took, 0.99) * 1e3


def in_own_network():
    """Runs this program again in a network namespace of its own, whose loopback device has packets of a network's size."""
    if "WEIR_BENCH_NETWORK" not in os.environ:
        os.environ["WEIR_BENCH_NETWORK"] = "own"
        others = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        os.execvp("unshare", ["unshare", "--net", *others, sys.executable, *sys.argv])
    for words in ("ip link set lo up mtu 1500 gso_max_segs 1", "tc qdisc add dev lo root handle 1: htb default 9",
                  "tc class add dev lo parent 1: classid 1:9 htb rate 40gbit quantum 60000"):
        subprocess.run(words.split(), check=True)


class Link:
    """Limits connections to ports, all together, in each direction. Each has its own queue of 1000 packets."""

    def __init__(self, megabytes):
        self.rate = f"{int(megabytes * 8e6)}bit"

    def add(self, port):
        for minor, end in ((1, "dport"), (2, "sport")):
            for words in (f"tc class replace dev lo parent 1: classid 1:{minor} htb rate {self.rate} burst 3000 cburst 3000 quantum 3000",
                          f"tc qdisc replace dev lo parent 1:{minor} handle {minor}0: pfifo limit 1000",
                          f"tc filter add dev lo parent 1: protocol ip u32 match ip {end} {port} 0xffff flowid 1:{minor}"):
                subprocess.run(words.split(), check=True)


def upstream(run, memory, kind):
    image = memory / "upstream.img"
    with open(image, "wb") as file:
        file.truncate(VOLUME * MIB)
    if kind == "tgtd":
        target = Tgtd(run, image)
        return target.name, target.lun, target.portals[0]
    config = Config().volume(file=image, state=memory / "upstream.state").target()
    gateway = Gateway(run, config, name="upstream")
    gateway.start()
    return TARGET, 0, gateway.portals[0]


def before_link(run, kind, link, round_trip, log_in=None, **volume):
    """A gateway whose volume is on a target of this kind behind a link of so many MB/s (0: no limit) and ms; with its
    proxy. With `log_size` among the keys of the volume it has a log, in memory or in this folder."""
    memory = run.memory()
    name, lun, portal = upstream(run, memory, kind)
    proxy = Proxy.start(run, portal)
    proxy("line", 0, 0, round_trip / 2000)
    if link:
        Link(link).add(proxy.portals[0].rsplit(":", 1)[1])
    config = Config().section("cache", size="4MiB").section("policy", prefetch="off")
    config.add("upstream", name="far", target=name, lun=lun, portals=proxy.portals)
    if "log_size" in volume:
        place = log_in or memory
        volume.update(state=place / "disk.state", log=place / "disk.log")
    gateway = Gateway(run, config.volume(upstream="far", **volume).target())
    gateway.start()
    return gateway, proxy
