"""Ten thousand hostile connections beside a working session.

The load generator runs alone, then with 10,000 connections that open and go silent, 1000 that send garbage and one
that begins at one byte per second, then alone again. Over NVMe/TCP most of the silent ones have sent ICReq or a part of it,
or have connected an admin queue, and a host of NVMe reads all the while, whose queues must stay. The throughput of the session under the flood is compared with the
mean of the two measurements without it; the better ratio of two rounds counts, since the machine has other load.
"""

import json
import random
import resource
import socket
import struct
import subprocess
import threading
import time

from ..harness.case import TARGET, Failed, Missed, case
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.nbd import address_of
from ..harness.nvme import Controller, Queue, Stream, connect_command, ic_req

SILENT, GARBAGE = 10_000, 1_000
# Connections opened at once, and batches per second. A flood comes from other machines; here it must leave the
# processor to the gateway and the load generator.
BATCH, BATCHES_PER_SECOND = 40, 25
# Length of a measurement without and with the flood, in seconds. The flood begins a second after the session, and is
# complete a second before the end.
QUIET, SECONDS, HEAD_START = 5, 13, 1.0
ROUNDS = 2
# Minimum part of its throughput that the session keeps.
RATIO = 0.9
# Maximum growth of the gateway's resident memory, in KiB.
GROWTH_MAX = 32 << 10
# Another host can log in again this long after the flood, in seconds.
RECOVERY_SECONDS = 40
SUBSYSTEM = "nqn.2026-11.org.example:flood"


def load(run, gateway, seconds):
    return run.spawn(run.load_program, "--url", f"{gateway.portals[0]}/{TARGET}/0", "--depth", 16, "--seconds", seconds,
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rate(process):
    said, _ = process.communicate(timeout=SECONDS + 60)
    if process.returncode != 0:
        raise Failed(f"the session failed: {said}")
    return json.loads(said.splitlines()[-1])["iops"]


class Iscsi:
    """What is sent to an iSCSI portal."""

    def __init__(self, gateway):
        self.address = address_of(gateway.portals[0])
        self.first = [b""] * SILENT + [random.Random(1).randbytes(1024)] * GARBAGE
        self.slow = login_request()

    def admits(self):
        return can_log_in(self.address)

    def check(self):
        pass


class Nvme:
    """What is sent to an NVMe portal, and a host that reads there all the while."""

    def __init__(self, gateway):
        self.address = address_of(gateway.ready["nvme"][0])
        few = SILENT // 10
        self.first = ([b""] * few + [ic_req()[:60]] * few + [ic_req() + connect_command(SUBSYSTEM, 0, 0xFFFF)] * few
                      + [ic_req()] * (SILENT - 3 * few) + [random.Random(1).randbytes(1024)] * GARBAGE)
        self.slow = ic_req()
        # The controller must outlive this call.
        self.controller, self.fault = Controller(self.address, SUBSYSTEM), None
        stream = Stream(self.controller.queue(1), (0, 64 << 20), depth=1)
        threading.Thread(target=self.reads, args=(stream,), daemon=True).start()

    def reads(self, stream):
        try:
            while True:
                stream.run(count=1)
                time.sleep(0.05)
        except (OSError, Failed) as error:
            self.fault = error

    def admits(self):
        try:
            return bool(Queue(self.address).connect(SUBSYSTEM, 0, 0xFFFF))
        except (OSError, Failed):
            return False

    def check(self):
        if self.fault:
            raise Failed(f"the host that reads lost its queue: {self.fault}")


class Flood:
    def __init__(self, way):
        self.way, self.to, self.sockets, self.refused = way, way.address, [], 0
        self.slow, self.slow_sent = None, 0

    def open(self, index):
        one = socket.socket()
        one.setblocking(False)
        # Several source addresses, since each has a separate range of ports.
        one.bind((f"127.0.0.{2 + index % 8}", 0))
        try:
            one.connect(self.to)
        except BlockingIOError:
            pass
        except OSError:
            self.refused += 1
            one.close()
            return None
        self.sockets.append(one)
        return one

    def run(self, seconds, watch):
        """Opens all connections and holds them; calls `watch` at intervals."""
        kinds = list(self.way.first)
        random.Random(2).shuffle(kinds)
        end, opened = time.monotonic() + seconds, 0
        self.slow = self.open(0)
        greeting = self.way.slow
        next_byte = 0
        while (now := time.monotonic()) < end:
            for index in range(opened, min(opened + BATCH, len(kinds))):
                one = self.open(index)
                if one and kinds[index]:
                    try:
                        one.send(kinds[index])
                    except OSError:
                        pass
            opened = min(opened + BATCH, len(kinds))
            if self.slow and now >= next_byte and self.slow_sent < len(greeting):
                next_byte = now + 1
                try:
                    self.slow_sent += self.slow.send(greeting[self.slow_sent:self.slow_sent + 1])
                except OSError:
                    self.slow = None
            watch()
            time.sleep(max(0, 1 / BATCHES_PER_SECOND - (time.monotonic() - now)))
        return opened

    def closed(self):
        """How many of them the gateway has closed by now."""
        count = 0
        for one in self.sockets:
            try:
                count += one.recv(1, socket.MSG_PEEK) == b""
            except BlockingIOError:
                pass
            except OSError:
                count += 1
        return count

    def end(self):
        for one in self.sockets:
            # A reset leaves no port in TIME_WAIT.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


def login_request():
    """A complete login request (RFC 7143 section 11.12)."""
    keys = b"InitiatorName=iqn.2026-11.io.weir:slow\0SessionType=Discovery\0"
    header = bytearray(48)
    header[0], header[1], header[8] = 0x43, 0x87, 0x80
    header[5:8] = len(keys).to_bytes(3, "big")
    return bytes(header) + keys + b"\0" * (-len(keys) % 4)


def can_log_in(address):
    """Whether a discovery session begins with success."""
    try:
        with socket.create_connection(address, timeout=5) as one:
            one.sendall(login_request())
            answer = b""
            while len(answer) < 48:
                more = one.recv(4096)
                if not more:
                    return False
                answer += more
            return answer[0] == 0x23 and answer[36:38] == b"\0\0"
    except OSError:
        return False


def one_round(run, gateway, way):
    """The ratio of throughputs, and the growth of memory in KiB."""
    before = rate(load(run, gateway, QUIET))
    start = gateway.resident()
    peak, last = start, 0.0

    def watch():
        nonlocal peak, last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            peak = max(peak, gateway.resident())

    flood, process = Flood(way), load(run, gateway, SECONDS)
    time.sleep(HEAD_START)
    opened = flood.run(SECONDS - HEAD_START + 0.5, watch)
    during = rate(process)
    watch()
    closed = flood.closed()
    flood.end()
    ended = time.monotonic()
    while not way.admits():
        if time.monotonic() - ended > RECOVERY_SECONDS:
            raise Failed(f"no host is admitted {RECOVERY_SECONDS} s after the flood")
        time.sleep(0.2)
    recovery = time.monotonic() - ended
    after = rate(load(run, gateway, QUIET))
    way.check()
    ratio = during / ((before + after) / 2)
    print(f"{opened} connections, {closed} closed by the gateway: {before:.0f} IOPS before, {during:.0f} during, {after:.0f} after, ratio "
          f"{ratio:.2f}; resident {start >> 10} MiB, at most {peak >> 10} MiB; another host is admitted after {recovery:.1f} s")
    return ratio, peak - start


def flood(run, way=Iscsi, nvme=None, **limits):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT + GARBAGE + 100:
        raise Failed(f"the limit of open files is {hard}; {SILENT + GARBAGE + 100} are needed: ulimit -Hn")
    # This case does not test the gateway's limit of open files.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = Config(**limits).volume(file=run.folder / "disk.img", size="64MiB", io="buffered").target()
    if nvme is not None:
        config.section("nvme", listen=["127.0.0.1:0"], **nvme).add("subsystem", name=SUBSYSTEM, namespaces={1: "disk"})
    gateway = Gateway(run, config)
    gateway.start()
    way = way(gateway)
    rounds = [one_round(run, gateway, way) for _ in range(ROUNDS)]
    gateway.stop()
    ratio, growth = max(one[0] for one in rounds), max(one[1] for one in rounds)
    if growth > GROWTH_MAX:
        raise Failed(f"memory grew by {growth >> 10} MiB, at most {GROWTH_MAX >> 10} MiB are allowed")
    if ratio < RATIO:
        raise Missed(f"the session has {ratio:.2f} of its throughput under the flood, {RATIO} wanted")


for name, protects, limits in (
        ("default", "a flood of connections, most of them refused, hardly slows a session", {}),
        ("admitted", "a flood of connections, all of them accepted, hardly slows a session", {"max_connections": 12000, "max_logins": 12000}),
        ("nvme", "a flood of NVMe connections, most of them refused, hardly slows a session and ends no queue", {"way": Nvme, "nvme": {}}),
        ("nvme_admitted", "a flood of NVMe connections, all of them accepted, hardly slows a session and ends no queue",
         {"way": Nvme, "nvme": {"max_connections": 12000}})):
    case(f"flood.{name}", protects, nightly=limits, informational=True, limit=300)(flood)
