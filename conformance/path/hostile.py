#!/usr/bin/env python3
"""A gateway whose upstreams have one portal that works and one that breaks the protocol.

    hostile.py config PORTS FILE > TOML     the volumes, for what hostile_target.py has printed
    hostile.py run --nbd HOST:PORT --pid PID --log LOG --control SOCKET

`run` works on all volumes, on one of a local file more than on the others, and compares what it
reads. Then the portals that work are gone for a while and come back. Nothing may be lost, every bad portal
must be named in the log with what is wrong with it, memory must stay as it is, and the local
volume must not notice. Status 0: so it was; 1: it was not.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import sys
import time

import hostile_target
from nbd import BLOCK, Broken, Client, Verifier

# Length of the parts, in seconds: to settle down, to work with one good portal each, without it, with it again.
SETTLE, WORK, WITHOUT, AGAIN = 4, 8, 5, 4
# Requests that each volume has outstanding.
DEPTH = 2
# Resident memory may grow by this much after the gateway has settled, in KiB: a segment of 256 KiB that each of
# two paths is receiving, and the data of the requests, of up to 256 KiB, which all wait at once without a path.
GROWTH_MAX = 256 * (2 + DEPTH) * len(hostile_target.FAULTS)
# A request may have been begun at a portal that answers checks and nothing else: it is given up after 30 s.
PATIENCE = 45
# Portals that put off whatever they are asked for, and how long that may hold up a request while the other
# portal works, in seconds.
PUT_OFF, PUT_OFF_MAX = ("M:busy", "M:full", "M:closed-window"), 2.0
# The longest request to the local volume, in seconds.
LOCAL_MAX = 1.0
# A portal is tried again later and later: no more connections than this, without its good neighbour's.
CONNECTIONS_MAX = 100
# Answers that a target may give. A path that only gives such is waited for, or not used, without an error.
LAWFUL = {"M:busy", "M:full", "M:attention", "M:conflict", "M:closed-window", "C:closed-window", "C:attention", "C:out-of-window",
          "M:out-of-window", "L:out-of-window"}


def name_of(fault):
    return fault.replace(":", ".")


def configuration(ports, file):
    lines = [f'[[volume]]\nname = "local"\nfile = "{file}"\nsize = "16MiB"']
    for fault, (good, bad) in json.loads(ports).items():
        name = name_of(fault)
        lines.append(f'[[upstream]]\nname = "{name}"\ntarget = "{hostile_target.NAME}"\nlun = 1\n'
                     f'portals = ["127.0.0.1:{good}", "127.0.0.1:{bad}"]\n'
                     f'[[volume]]\nname = "{name}"\nupstream = "{name}"')
    names = ["local", *map(name_of, json.loads(ports))]
    exports = ", ".join(f'"{name}" = "{name}"' for name in names)
    return f"[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = {{ {exports} }}\n" + "\n".join(lines)


class Gateway:
    def __init__(self, pid):
        self.pid = pid

    def resident(self):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise Broken("the gateway is gone")

    def cpu(self):
        fields = open(f"/proc/{self.pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(options):
    gateway = Gateway(options.pid)
    control = socket.socket(socket.AF_UNIX)
    control.connect(options.control)
    answers = control.makefile()

    def order(what):
        control.sendall(f"{what}\n".encode())
        return json.loads(answers.readline())

    host, port = options.nbd.rsplit(":", 1)
    until, tasks, verifiers = asyncio.Event(), [], {}
    for number, fault in enumerate(["local", *hostile_target.FAULTS]):
        client = await Client.connect(host, int(port), name_of(fault))
        depth, pause = (4, 0.002) if fault == "local" else (DEPTH, 0.2)
        verifiers[fault] = Verifier(client, 0, 1 << 20 >> 12, depth, number, pause)
        tasks.append(asyncio.ensure_future(verifiers[fault].run(until)))

    async def watch(seconds):
        nonlocal peak
        for _ in range(int(seconds * 5)):
            peak = max(peak, gateway.resident())
            await asyncio.sleep(0.2)

    peak = 0
    await watch(SETTLE)
    settled = peak = gateway.resident()
    cpu, begin = gateway.cpu(), time.monotonic()
    await watch(WORK)
    off = time.monotonic()
    order("off")
    await watch(WITHOUT)
    waiting = sum(1 for one in verifiers.values() if one.outstanding)
    order("on")
    await watch(AGAIN)
    cpu, end = gateway.cpu() - cpu, time.monotonic()
    until.set()
    _, late = await asyncio.wait(tasks, timeout=PATIENCE)
    wrong = [f"{fault}: {task.exception()}" for fault, task in zip(verifiers, tasks) if task.done() and task.exception()]
    wrong += [f"{fault}: requests do not end although a portal works" for fault, task in zip(verifiers, tasks) if task in late]
    if wrong:
        raise Broken("; ".join(wrong))
    counts = order("counts")
    busiest = max(counts, key=counts.get)
    local = verifiers["local"]
    worst = max(verifiers, key=lambda fault: verifiers[fault].longest(begin) if fault != "local" else 0)
    print(f"{len(verifiers) - 1} hostile portals: {sum(len(one.done) for one in verifiers.values())} verified requests, none lost; "
          f"{waiting} volumes had to wait while the good portals were gone")
    print(f"resident {settled >> 10} MiB, at most {peak >> 10} MiB; {cpu / (end - begin) * 100:.0f} % of a processor; most "
          f"connections {counts[busiest]} ({busiest})")
    held = {fault: max(min(end, off) - sent for sent, end in verifiers[fault].done if sent < off) for fault in PUT_OFF}
    print("longest request that was put off, while the good portal worked: "
          + ", ".join(f"{seconds:.2f} s ({fault})" for fault, seconds in held.items()))
    print(f"longest request {local.longest(begin) * 1000:.0f} ms on the local volume, "
          f"{verifiers[worst].longest(begin):.1f} s on an upstream's ({worst}), {WITHOUT} s of it without a good portal")
    if peak - settled > GROWTH_MAX:
        raise Broken(f"memory grew by {peak - settled >> 10} MiB, {GROWTH_MAX >> 10} MiB are allowed")
    if counts[busiest] > CONNECTIONS_MAX:
        raise Broken(f"{counts[busiest]} connections to {busiest}: it is tried too often")
    if local.longest(begin) > LOCAL_MAX:
        raise Broken("the local volume's requests waited for the hostile portals")
    if max(held.values()) > PUT_OFF_MAX:
        raise Broken("requests waited for a portal that puts them off")
    named(open(options.log).read(), order("counts"))


def named(log, counts):
    """Every bad portal is in the log with what it did."""
    silent = []
    for fault in counts:
        lines = [line for line in log.splitlines() if re.search(rf"\b{re.escape(name_of(fault))}(?![\w.])", line)]
        if not any(re.search(r"WARN|ERROR", line) for line in lines) and fault not in LAWFUL:
            silent.append(fault)
    if silent:
        raise Broken(f"the log has no warning about: {', '.join(silent)}")
    print(f"the log names all of them but those that broke nothing ({len(LAWFUL)} may be silent)")


def main():
    if sys.argv[1] == "config":
        print(configuration(sys.argv[2], sys.argv[3]))
        return
    parser = argparse.ArgumentParser()
    for name, kind in (("nbd", str), ("pid", int), ("log", str), ("control", str)):
        parser.add_argument("--" + name, type=kind, required=True)
    try:
        asyncio.run(run(parser.parse_args(sys.argv[2:])))
    except Broken as broken:
        print(f"FAIL {broken}", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
