"""Two gateways with write-back logs in front of one unit of a third-party target: only one of them writes to it."""

import re
import signal
import time

from ..harness import fio
from ..harness.case import Failed, case, ok, output, refuse, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.proxy import Proxy
from ..harness.targets import MUTUAL, SECRET, Istgt, Tgtd
from .interop import qemu_io

MIB = 1 << 20
FILL = 16


class Owner(Gateway):
    """One of the two gateways."""

    def __init__(self, run, name, target, portals, **upstream):
        config = Config().nbd().account("alice", secret=SECRET).account("tgtside", secret=MUTUAL)
        config.add("upstream", name="array", target=target.name, lun=target.lun, portals=portals,
                   initiator_name=f"iqn.2026-11.org.example:{name}", reconnect_interval_max="200ms", **upstream)
        config.volume(upstream="array", state="disk.state", log="disk.log", log_size="64MiB").target()
        super().__init__(run, config, name)

    def fence(self):
        return self.volume()["fences"][0]

    def fill(self, byte):
        output(*qemu_io(self.uri(), f"write -P {byte} 0 8M", f"write -P {byte} 8M 8M", "flush"))

    def refused(self, status, pattern):
        """The gateway must not start, must exit with this status, and must print the reason."""
        self.write()
        refuse(pattern, self.weir, "serve", self.file, status=status, seconds=60, cwd=self.folder)


def owners(run, target, **upstream):
    # A has a delay of 10 ms to the target, so that its log has dirty data when it is frozen.
    proxy = Proxy.start(run, *target.portals)
    for path in range(len(target.portals)):
        proxy("line", path, 0, 0.01)
    a, b = Owner(run, "a", target, proxy.portals, **upstream), Owner(run, "b", target, target.portals, **upstream)
    a.start()
    key = a.fence()["key"]
    reserved = a.said().count("path is ready: the unit is reserved")
    if reserved != len(target.portals):
        raise Failed(f"A has reserved the unit on {reserved} of {len(target.portals)} paths")
    b.refused(7, f"key {key}.*Registrants Only")
    a.fill(0xAA)
    a.kill()
    b.refused(7, f"key {key}")
    a.start()
    again = a.fence()["key"]
    if again[6:] != key[6:] or again == key:
        raise Failed(f"A does not recognise its reservation: {key}, then {again}")
    ok(f"A is killed and recognises its reservation: {key}, then {again}")

    # When A is frozen, host writes are in flight and the log is dirty. A large write that A does not complete would
    # block istgt, so recovered data is destaged first.
    until(lambda: not a.volume_log()["dirty_bytes"], "A destages its recovered data", 60)
    writer = run.spawn(*fio.words("a", a.uri(), rw="randwrite", bs="64k", size=f"{FILL}m", iodepth=8, fsync=4,
                                  buffer_pattern="0xaa", time_based=True, runtime=30), stdout=open(run.folder / "fio", "wb"))
    until(lambda: a.volume_log()["dirty_bytes"], "A's log is dirty", 20)
    a.process.send_signal(signal.SIGSTOP)
    b.start("--take-over", f"disk={again}")
    b.fill(0xBB)
    b.drain()
    a.process.send_signal(signal.SIGCONT)
    until(lambda: "FENCED" in a.said(), "A reports that it is fenced", 20)
    holder = b.fence()["key"]
    if not re.search(f"FENCED.*{holder}", a.said()):
        raise Failed(f"A does not report that {holder} has fenced it")
    if (a.fence()["state"], a.fence()["holder"]) != ("fenced", holder):
        raise Failed(f"A's status: {a.fence()}")
    if writer.wait(60) == 0:
        raise Failed("hosts of A had no error")
    print(a.cli("volume", "status", "disk"))
    if not a.volume_log()["dirty_bytes"]:
        raise Failed("A had no dirty data left: the case is inconclusive")
    time.sleep(1)
    a.stop()
    # The target's file.
    with open(target.image, "rb") as image:
        if image.read(FILL * MIB) != b"\xbb" * (FILL * MIB):
            raise Failed("a write of A reached the unit after the take-over")
    ok("B takes over from a frozen A, which is fenced; no write of A reaches the unit")
    a.refused(7, f"key {holder}")
    b.stop()
    a.refused(6, "PRGENERATION")
    b.start()
    b.stop()
    ok("a drained unit is released and B may return; A may not")


@case("fence.tgtd", "of two gateways on one unit of tgtd only one writes, and a fenced gateway never writes again",
      gate={}, tools=("tgtd", "tgtadm", "fio", "qemu-io"))
def tgtd(run):
    owners(run, Tgtd(run, run.image("disk.img", 64)))


@case("fence.away", "a gateway that has started without its unit is fenced when the unit is back and another gateway owns it",
      gate={}, tools=("tgtd", "tgtadm", "qemu-io"))
def away(run):
    target = Tgtd(run, run.image("disk.img", 64))
    proxy = Proxy.start(run, *target.portals)
    paths = range(len(target.portals))
    a = Owner(run, "a", target, proxy.portals, connect_timeout="1s")
    b = Owner(run, "b", target, target.portals)
    a.start()
    key = a.fence()["key"]
    a.fill(0xAA)
    a.kill()
    for path in paths:
        proxy("kill", path)
    b.start("--take-over", f"disk={key}")
    b.fill(0xBB)
    b.drain()
    a.start()
    if a.fence()["state"] != "unclaimed":
        raise Failed(f"A does not say that its unit is unclaimed: {a.fence()}")
    a.fill(0xCC)
    ok("A starts without its unit and logs writes")
    for path in paths:
        proxy("up", path)
    until(lambda: a.fence()["state"] == "fenced", "A is fenced", 30)
    holder = b.fence()["key"]
    if a.fence()["holder"] != holder or not re.search(f"FENCED.*{holder}", a.said()):
        raise Failed(f"A does not say who has the unit: {a.fence()}")
    print(a.cli("volume", "status", "disk"))
    refuse("Input/output error", *qemu_io(a.uri(), "read 0 4k"), status=1)
    if a.volume_log()["dirty_bytes"] < FILL * MIB:
        raise Failed(f"A has dropped data of its log: {a.volume_log()}")
    a.stop()
    with open(target.image, "rb") as image:
        if image.read(FILL * MIB) != b"\xbb" * (FILL * MIB):
            raise Failed("a write of A reached the unit")
    ok("A is fenced by the owner of the unit, refuses its hosts and keeps its log")
    a.refused(7, f"key {holder}")
    for path in paths:
        proxy("kill", path)
    a.refused(7, "no path to upstream")
    b.stop()
    ok("A does not start again, with its unit and without it")


@case("fence.istgt", "of two gateways on one unit of istgt only one writes, and a fenced gateway never writes again",
      gate={}, tools=("istgt", "fio", "qemu-io"))
def istgt(run):
    owners(run, Istgt(run), account="alice", mutual="tgtside")
