#!/usr/bin/env python3
"""Opens connections to a gateway that are up to no good, while a session of another host works.

    flood.py PORTAL URL PID LOAD

PORTAL is host:port on the loopback network, URL `PORTAL/TARGET/LUN` for the program LOAD
(tools/iscsi-load), PID the gateway. Twice: LOAD runs alone, then LOAD runs with 10 000
connections that open and go silent, 1000 that send garbage and one that logs in at a byte a second,
then LOAD runs alone again. The session's throughput under the flood is compared with the mean of the
two beside it; the better of the two ratios counts, as the machine has other things to do too. Prints
one line of numbers a round.

Status 0: all is well; 1: the gateway took too much memory, fell over or does not let anybody in after
the flood; 4: the session did not keep its throughput.
"""

import json
import random
import resource
import socket
import struct
import subprocess
import sys
import time

SILENT, GARBAGE = 10_000, 1_000
# Connections opened in one go, and how many goes a second. A flood comes from other machines; here it
# must leave the processor to those who are measured.
BATCH, BATCHES_PER_SECOND = 40, 25
# Length of a measurement without and with the flood, in seconds. The flood comes when the session has
# been there for a second, and has come when there is a second left.
QUIET, SECONDS, HEAD_START = 5, 13, 1.0
ROUNDS = 2
# The session keeps at least this part of its throughput.
RATIO = 0.9
# The gateway's resident memory grows by no more than this, in KiB.
GROWTH_MAX = 32 << 10
# A host that has nothing to do with it can log in again this long after the flood, in seconds.
RECOVERY_SECONDS = 40


def resident(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("the gateway is gone")


def load(program, url, seconds):
    return subprocess.Popen([program, "--url", url, "--depth", "16", "--seconds", str(seconds)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rate(process):
    output, _ = process.communicate(timeout=SECONDS + 30)
    if process.returncode != 0:
        raise RuntimeError(f"the session failed: {output}")
    return json.loads(output.splitlines()[-1])["iops"]


class Flood:
    def __init__(self, portal):
        host, port = portal.rsplit(":", 1)
        self.to, self.sockets, self.refused = (host, int(port)), [], 0
        self.noise = random.Random(1).randbytes(1024)
        self.slow, self.slow_sent = None, 0

    def open(self, index):
        one = socket.socket()
        one.setblocking(False)
        # Many source addresses: each has ports of its own.
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
        """Opens everything, then holds it; calls `watch` now and then."""
        kinds = ["silent"] * SILENT + ["garbage"] * GARBAGE
        random.Random(2).shuffle(kinds)
        end, opened = time.monotonic() + seconds, 0
        self.slow = self.open(0)
        greeting = login_request()
        next_byte = 0
        while (now := time.monotonic()) < end:
            for index in range(opened, min(opened + BATCH, len(kinds))):
                one = self.open(index)
                if one and kinds[index] == "garbage":
                    try:
                        one.send(self.noise)
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
            # A reset leaves no port behind that waits.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


def login_request():
    """A login request as a whole (RFC 7143 section 11.12)."""
    keys = b"InitiatorName=iqn.2026-11.io.weir:slow\0SessionType=Discovery\0"
    header = bytearray(48)
    header[0], header[1], header[8] = 0x43, 0x87, 0x80
    header[5:8] = len(keys).to_bytes(3, "big")
    return bytes(header) + keys + b"\0" * (-len(keys) % 4)


def can_log_in(portal):
    """Whether a discovery session begins and is told that all is well."""
    host, port = portal.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as one:
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


def one_round(portal, url, pid, program):
    before = rate(load(program, url, QUIET))
    start = resident(pid)
    peak = start
    last_look = 0.0

    def watch():
        nonlocal peak, last_look
        if time.monotonic() - last_look > 0.2:
            last_look = time.monotonic()
            peak = max(peak, resident(pid))

    flood = Flood(portal)
    process = load(program, url, SECONDS)
    time.sleep(HEAD_START)
    opened = flood.run(SECONDS - HEAD_START + 0.5, watch)
    during = rate(process)
    watch()
    closed = flood.closed()
    flood.end()
    ended = time.monotonic()
    while not can_log_in(portal):
        if time.monotonic() - ended > RECOVERY_SECONDS:
            raise RuntimeError(f"nobody can log in {RECOVERY_SECONDS} s after the flood")
        time.sleep(0.2)
    recovery = time.monotonic() - ended
    after = rate(load(program, url, QUIET))
    ratio = during / ((before + after) / 2)
    print(f"{opened} connections, {closed} closed by the gateway: {before:.0f} IOPS before, {during:.0f} during, "
          f"{after:.0f} after, ratio {ratio:.2f}; resident {start >> 10} MiB, at most {peak >> 10} MiB; "
          f"another host logs in after {recovery:.1f} s", flush=True)
    return ratio, peak - start


def main():
    portal, url, pid, program = sys.argv[1:5]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT + GARBAGE + 100:
        sys.exit(f"the limit of open files is {hard}; {SILENT + GARBAGE + 100} are needed: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rounds = [one_round(portal, url, pid, program) for _ in range(ROUNDS)]
    ratio, growth = max(one[0] for one in rounds), max(one[1] for one in rounds)
    print(f"best ratio {ratio:.2f}, at least {RATIO} wanted; memory grew by {growth >> 10} MiB, "
          f"at most {GROWTH_MAX >> 10} MiB allowed")
    if growth > GROWTH_MAX:
        sys.exit(1)
    if ratio < RATIO:
        sys.exit(4)


try:
    main()
except RuntimeError as error:
    sys.exit(f"flood.py: {error}")
