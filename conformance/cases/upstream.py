"""Weir as the initiator of third-party targets, and of targets that violate the protocol."""

import asyncio
import re
import time

from ..harness import fio, hostile_target
from ..harness.case import Failed, Missed, case, expect, ok, output, refuse, same_files
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.hostile_target import Hostile
from ..harness.nbd import Client, Verifier, address_of
from ..harness.targets import MUTUAL, SECRET, Istgt, Tgtd
from .interop import qemu_io

TOOLS = ("fio", "qemu-io", "qemu-img")
WRONG = "wrongwrongwrong"
BOTH = {"account": "alice", "mutual": "tgtside", "header_digest": "required", "data_digest": "required"}


class Peer:
    """A gateway's view of one unit of a third-party target."""

    def __init__(self, run, target, lun, portal, image):
        self.run, self.target, self.lun, self.portal, self.image = run, target, lun, portal, image

    def gateway(self, alice=SECRET, tgtside=MUTUAL, **upstream):
        config = Config().nbd().account("alice", secret=alice).account("tgtside", secret=tgtside)
        config.add("upstream", name="peer", target=self.target, lun=self.lun, portals=[self.portal], connect_timeout="3s", **upstream)
        return Gateway(self.run, config.volume(upstream="peer").target())

    def verified(self, what, **upstream):
        """Data that NBD and iSCSI clients write is read back, and is in the target's file."""
        gateway, copy = self.gateway(**upstream), self.run.folder / "copy.img"
        gateway.start()
        fio.verified(self.run, gateway.uri(), what, bsrange="4k-256k", size="32m", iodepth=32)
        expect("read 4194304/4194304", *qemu_io(
            gateway.url(), "write -P 7 32M 4M", "write -f -P 8 33M 64k", "write -z 34M 64k", "discard 35M 64k", "flush",
            "read -P 8 33M 64k", "read -P 0 34M 64k", "read -P 7 32M 512k", "read 32M 4M"))
        output("qemu-img", "convert", "-f", "raw", "-O", "raw", gateway.uri(), copy)
        if not same_files(copy, self.image):
            raise Failed(f"{what}: the target's file differs from what the gateway reads")
        gateway.stop()
        ok(what)

    def written_back(self, what, **upstream):
        """A log is destaged to the target, and the gateway reports how epochs became durable there."""
        folder = self.run.fresh("back")
        config = Config().account("alice", secret=SECRET).account("tgtside", secret=MUTUAL)
        config.add("upstream", name="peer", target=self.target, lun=self.lun, portals=[self.portal], **upstream)
        config.volume(upstream="peer", state=folder / "state", log=folder / "log", log_size="16MiB").target()
        gateway, copy = Gateway(self.run, config, "gateway-back"), folder / "copy.img"
        gateway.start()
        expect("wrote 1048576/1048576", *qemu_io(gateway.url(), "write -P 9 1M 64k", "flush", "write -P 10 2M 1M", "flush"))
        gateway.drain()
        log, said = gateway.volume_log(), gateway.cli("volume", "status")
        output("qemu-img", "convert", "-f", "raw", "-O", "raw", gateway.url(), copy)
        gateway.stop()
        if log["epochs"] < 2 or log["fua_epochs"] > log["epochs"] or "epochs written back, one at a time" not in said:
            raise Failed(f"{what}: two flushes ended no two epochs, or the status has no mode: {log}, {said}")
        if not same_files(copy, self.image):
            raise Failed(f"{what}: the target's file differs from the volume after a drain")
        ok(f"{what}: " + next(line for line in said.splitlines() if "epochs written back" in line))

    def refused(self, pattern, **changes):
        """The gateway must not start, and must print the reason."""
        gateway = self.gateway(**changes)
        gateway.write()
        refuse(pattern, gateway.weir, "serve", gateway.file, seconds=40)

    def wrong_secrets(self):
        """The wrong secret comes last, because a target may refuse an initiator after failed logins."""
        self.refused("peer.*([Aa]uthentication|prove|CHAP)", tgtside=WRONG, **BOTH)
        self.refused("peer.*([Aa]uthentication|0201|refused)", alice=WRONG, **BOTH)


@case("upstream.tgtd", "tgtd works as an upstream, also with mutual CHAP and digests; a wrong secret is refused",
      gate={}, tools=("tgtd", "tgtadm", *TOOLS))
def tgtd(run):
    target = Tgtd(run, run.image("disk.img", 64))
    peer = Peer(run, target.name, target.lun, target.portals[0], target.image)
    peer.verified("tgtd, as it is")
    peer.written_back("tgtd")
    target.authenticate()
    peer.verified("tgtd, mutual CHAP, CRC32C over headers and data", **BOTH)
    peer.wrong_secrets()


@case("upstream.istgt", "istgt works as an upstream with mutual CHAP and digests; a wrong secret is refused",
      gate={}, tools=("istgt", *TOOLS))
def istgt(run):
    target = Istgt(run)
    peer = Peer(run, target.name, target.lun, target.portals[0], target.image)
    peer.verified("istgt, mutual CHAP, CRC32C over headers and data", **BOTH)
    peer.written_back("istgt", **BOTH)
    peer.wrong_secrets()


@case("upstream.weir", "a gateway works as the upstream of another with mutual CHAP and digests; a wrong secret is refused",
      gate={}, tools=TOOLS)
def weir(run):
    name, image = "iqn.2026-11.io.weir:behind", run.folder / "behind.img"
    config = Config(header_digest="required", data_digest="required")
    config.account("alice", secret=SECRET).account("tgtside", secret=MUTUAL).volume(file=image, size="64MiB")
    behind = Gateway(run, config.target(name=name, accounts=["alice"], mutual="tgtside"), "behind")
    behind.start()
    peer = Peer(run, name, 0, behind.portals[0], image)
    peer.verified("Weir, mutual CHAP, CRC32C over headers and data", **BOTH)
    peer.written_back("Weir", **BOTH)
    peer.wrong_secrets()
    behind.stop()


# --- portals that violate the protocol

# Requests that each volume has outstanding.
DEPTH = 2
# Maximum growth of resident memory in steady state, in KiB: a segment of 256 KiB in reception on each of two paths,
# and the data of the requests, up to 256 KiB each, which all wait at once without a path.
GROWTH_MAX = 256 * (2 + DEPTH) * len(hostile_target.FAULTS)
# A request may have been sent to a portal that only answers checks: it is abandoned after 30 s.
PATIENCE = 45
# Portals that answer BUSY to every request, and the maximum delay of a request while the other portal works, in
# seconds.
PUT_OFF, PUT_OFF_MAX = ("M:busy", "M:full", "M:closed-window"), 2.0
# The longest request to the local volume, in seconds.
LOCAL_MAX = 1.0
# The retry interval of a portal grows: maximum number of connections, without those to the good portal.
CONNECTIONS_MAX = 100
# Legal answers of a target. The gateway waits for a path with such answers, or does not use it, without an error.
LAWFUL = {"M:busy", "M:full", "M:attention", "M:conflict", "M:closed-window", "C:closed-window", "C:attention", "C:out-of-window",
          "M:out-of-window", "L:out-of-window"}
# No gateway can establish a path to these, so it does not start if they are the only portal.
ALONE = ("close:0", "close:2", "mute:1", "L:denied", "L:never", "L:moved-here", "C:data-more", "C:capacity-huge", "C:block-3")


def name_of(fault):
    return fault.replace(":", ".")


def hostile(run, timed, **parts):
    """Verified load on all volumes, with the most on one with a local file. Then the working portals fail for a while and
    return."""
    targets = Hostile(run)
    config = Config().nbd("local", *map(name_of, targets.ports)).volume("local", file=run.folder / "local.img", size="16MiB")
    for fault, ports in targets.ports.items():
        config.add("upstream", name=name_of(fault), target=hostile_target.NAME, lun=1, portals=[f"127.0.0.1:{port}" for port in ports],
                   connect_timeout="60s")
        config.volume(name_of(fault), upstream=name_of(fault))
    gateway = Gateway(run, config.target("local"))
    gateway.start()
    late = asyncio.run(hostile_load(gateway, targets, **parts))
    # This portal reports a reset of the unit after writes that no flush has made durable.
    gateway.stop(lost=["M.attention"])
    for fault in ALONE:
        peer = Peer(run, hostile_target.NAME, 1, f"127.0.0.1:{targets.ports[fault][1]}", None)
        peer.refused("peer.* works within")
    if late and timed:
        raise Missed("; ".join(late))


HOSTILE = {"settle": 4, "work": 8, "without": 5, "again": 4}
case("upstream.hostile", "portals that violate the protocol lose no request, cost bounded memory and connections, and appear in the log",
     gate={**HOSTILE, "timed": False}, limit=400)(hostile)
case("upstream.hostile_delays", "portals that violate the protocol hardly delay a request while another portal works",
     nightly={**HOSTILE, "timed": True}, attempts=3, informational=True, limit=400)(hostile)


async def hostile_load(gateway, order, settle, work, without, again):
    """What took too long."""
    until, tasks, verifiers = asyncio.Event(), [], {}
    for number, fault in enumerate(["local", *hostile_target.FAULTS]):
        client = await Client.connect(address_of(gateway.nbd), name_of(fault))
        depth, pause = (4, 0.002) if fault == "local" else (DEPTH, 0.2)
        verifiers[fault] = Verifier(client, 0, 1 << 20 >> 12, depth, number, pause)
        tasks.append(asyncio.ensure_future(verifiers[fault].run(until)))

    async def watch(seconds):
        nonlocal peak
        for _ in range(int(seconds * 5)):
            peak = max(peak, gateway.resident())
            await asyncio.sleep(0.2)

    peak = 0
    await watch(settle)
    settled = peak = gateway.resident()
    begin = time.monotonic()
    await watch(work)
    off = time.monotonic()
    before = sum(len(one.done) for fault, one in verifiers.items() if fault in PUT_OFF)
    order("off")
    await watch(without)
    waiting = sum(1 for one in verifiers.values() if one.outstanding)
    order("on")
    await watch(again)
    until.set()
    _, unfinished = await asyncio.wait(tasks, timeout=PATIENCE)
    wrong = [f"{fault}: {task.exception()}" for fault, task in zip(verifiers, tasks) if task.done() and task.exception()]
    wrong += [f"{fault}: requests do not complete although a portal works" for fault, task in zip(verifiers, tasks) if task in unfinished]
    if wrong:
        raise Failed("; ".join(wrong))
    counts, local = order("counts"), verifiers["local"]
    busiest = max(counts, key=counts.get)
    held = {fault: max(min(end, off) - sent for sent, end in verifiers[fault].done if sent < off) for fault in PUT_OFF}
    print(f"{len(verifiers) - 1} hostile portals: {sum(len(one.done) for one in verifiers.values())} verified requests, none lost; "
          f"{waiting} volumes had to wait while the good portals were gone")
    print(f"resident {settled >> 10} MiB, at most {peak >> 10} MiB; most connections {counts[busiest]} ({busiest})")
    print("longest request that was put off, while the good portal worked: "
          + ", ".join(f"{seconds:.2f} s ({fault})" for fault, seconds in held.items())
          + f"; longest on the local volume {local.longest(begin) * 1000:.0f} ms")
    if peak - settled > GROWTH_MAX:
        raise Failed(f"memory grew by {peak - settled >> 10} MiB, {GROWTH_MAX >> 10} MiB are allowed")
    if counts[busiest] > CONNECTIONS_MAX:
        raise Failed(f"{counts[busiest]} connections to {busiest}: it is tried too often")
    # On a machine of any speed, a volume that waits for a portal that answers BUSY completes no request.
    if not before or len(local.done) < 100:
        raise Failed(f"{before} requests ended on volumes that are put off, {len(local.done)} on the local volume")
    named(gateway.said(), counts)
    late = [f"{fault}: a request waited {seconds:.1f} s" for fault, seconds in held.items() if seconds > PUT_OFF_MAX]
    if local.longest(begin) > LOCAL_MAX:
        late.append(f"a request to the local volume took {local.longest(begin):.1f} s")
    return late


def named(log, counts):
    """The log names every bad portal and its fault."""
    silent = []
    for fault in counts:
        lines = [line for line in log.splitlines() if re.search(rf"\b{re.escape(name_of(fault))}(?![\w.])", line)]
        if not any(re.search(r"WARN|ERROR", line) for line in lines) and fault not in LAWFUL:
            silent.append(fault)
    if silent:
        raise Failed(f"the log has no warning about: {', '.join(silent)}")
    ok(f"the log names all portals that violate the protocol ({len(LAWFUL)} do not and may be missing)")
