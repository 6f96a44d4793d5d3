#!/usr/bin/env python3
"""The upstream alone, cut off at any instant, must be a file system that its journal repairs: see ../power_cut.sh.

Prints figures and a verdict. Status 0: as it must be; 1: a cut left what no disk may leave, or the check is blind.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time

from gateway import Gateway
from iscsi import Broken
from recorded import Disk, cut, entries

# How long files are made, changed and removed, in seconds, and when the gateway is killed meanwhile.
WORKING, KILLED = 20, 8
# Cuts that take flushed writes as well: some of them must be seen.
UNFAIR = 40
SECONDS = 60


def run(*command, good=(0,), seconds=SECONDS):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode not in good:
        raise Broken(f"{' '.join(command)}: status {done.returncode}: {(done.stdout + done.stderr)[-600:].strip()}")
    return done.stdout.strip()


class Host:
    """A file system on the gateway's volume: QEMU's initiator, a file by FUSE, a loop device."""

    def __init__(self, portal, target, work):
        self.portal, self.target, self.place, self.mount = portal, target, os.path.join(work, "host.disk"), os.path.join(work, "mnt")
        self.process, self.loop = None, None

    def start(self, size):
        open(self.place, "wb").close()
        os.makedirs(self.mount, exist_ok=True)
        self.process = subprocess.Popen(
            ["qemu-storage-daemon", "--blockdev", f"driver=iscsi,node-name=up,transport=tcp,portal={self.portal},"
             f"target={self.target},lun=0,cache.direct=on", "--blockdev", "driver=raw,node-name=disk,file=up",
             "--export", f"type=fuse,id=export,node-name=disk,mountpoint={self.place},writable=on"],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(SECONDS * 20):
            if os.path.getsize(self.place) == size:
                break
            if self.process.poll() is not None:
                raise Broken(f"qemu-storage-daemon left with status {self.process.returncode}")
            time.sleep(0.05)
        self.loop = run("losetup", "--find", "--show", self.place)

    def end(self):
        """However it went."""
        subprocess.run(["umount", self.mount], stderr=subprocess.DEVNULL, check=False, timeout=SECONDS)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], check=False, timeout=SECONDS)
        if self.process:
            self.process.terminate()
            self.process.wait(SECONDS)
        self.loop = self.process = None


def files(folder, seed, until):
    """Makes, writes, renames, shortens and removes files, and has some of them made durable; how many."""
    chance, names, number = random.Random(seed), [], 0
    while time.monotonic() < until:
        number += 1
        what = chance.random()
        place = os.path.join(folder, f"d{chance.randrange(8)}")
        os.makedirs(place, exist_ok=True)
        if what < 0.55 or len(names) < 8:
            name = os.path.join(place, f"f{number}")
            with open(name, "wb") as file:
                file.write(chance.randbytes(chance.choice((100, 3000, 9000, 40000, 150000))))
                if chance.random() < 0.3:
                    file.flush()
                    os.fsync(file.fileno())
            names.append(name)
        elif what < 0.65:
            index = chance.randrange(len(names))
            to = os.path.join(place, f"r{number}")
            os.rename(names[index], to)
            names[index] = to
        elif what < 0.72:
            os.truncate(chance.choice(names), chance.randrange(50000))
        elif what < 0.75:
            os.sync()
        else:
            os.unlink(names.pop(chance.randrange(len(names))))
        while len(names) > 150:
            os.unlink(names.pop(0))
    return number


def check(kind, image, mount):
    """What is wrong with a file system whose power was cut, once its journal was replayed; None if nothing is."""
    try:
        if kind == "ext4":
            run("e2fsck", "-y", "-E", "journal_only", image, good=(0, 1))
            run("e2fsck", "-fn", image)
        else:
            run("mount", "-o", "loop,nouuid", image, mount)
            run("umount", mount)
            run("xfs_repair", "-n", image)
    except Broken as broken:
        return str(broken)
    return None


def settled(gateway):
    """Everything is upstream."""
    for _ in range(SECONDS * 10):
        if gateway.volume_log()["dirty_bytes"] == 0:
            return
        time.sleep(0.1)
    raise Broken("the log does not become empty")


def record(options, gateway, disk, host):
    """Works on the volume; the entry behind which any cut must be legal."""
    disk.start()
    gateway.start()
    host.start(os.path.getsize(disk.base))
    run(f"mkfs.{options.kind}", "-q", host.loop)
    run("mount", host.loop, host.mount)
    run("sync", "-f", host.mount)
    settled(gateway)
    first = len(entries(disk.record))

    def again():
        gateway.kill()
        gateway.start()

    killer = threading.Timer(KILLED, again)
    killer.start()
    done = files(host.mount, options.seed, time.monotonic() + WORKING)
    killer.join()
    run("umount", host.mount)
    host.end()
    settled(gateway)
    gateway.stop()
    disk.stop()
    return first, done


def main():
    parser = argparse.ArgumentParser()
    for name in ("weir", "config", "log", "control", "target", "work", "portal"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("kind", choices=("ext4", "xfs"))
    options = parser.parse_args()
    upstream = os.path.join(options.work, "upstream")
    gateway, host = Gateway(options), Host(options.portal, options.target, options.work)
    disk = Disk(upstream + ".base", upstream + ".record", upstream)
    begin = time.monotonic()
    try:
        first, done = record(options, gateway, disk, host)
        chance, recorded = random.Random(options.seed), entries(disk.record)
        flushes = sum(bool(one.flags & 1) for one in recorded[first:])
        print(f"{options.kind}: {done} changes of files, with a kill of the gateway; the upstream had {len(recorded) - first} writes and "
              f"flushes of it, {flushes} of them flushes")
        image, fates, faults, unfair = upstream + ".cut", [0, 0, 0], [], 0
        for _ in range(options.cuts):
            point, seed = chance.randint(first, len(recorded)), chance.getrandbits(32)
            fates = [sum(pair) for pair in zip(fates, cut(disk.base, disk.record, image, point, seed))]
            fault = check(options.kind, image, host.mount)
            if fault:
                faults.append(f"after {point} entries, seed {seed}: {fault}")
        for _ in range(UNFAIR):
            cut(disk.base, disk.record, image, chance.randint(first, len(recorded)), chance.getrandbits(32), first)
            unfair += check(options.kind, image, host.mount) is not None
        print(f"{options.cuts} cuts, {len(faults)} of them illegal; {fates[1]} writes were lost in them and {fates[2]} torn. Of {UNFAIR} "
              f"cuts that took flushed writes too, {unfair} were seen")
        if faults:
            raise Broken(f"{len(faults)} of {options.cuts} cuts: {faults[0]}")
        if not unfair:
            raise Broken("no cut that took flushed writes was seen: this check is blind")
        if gateway.panicked():
            raise Broken("the gateway panicked")
    except Broken as broken:
        print(f"FAIL {options.kind}, seed {options.seed}: {broken}", flush=True)
        sys.exit(1)
    finally:
        host.end()
        if gateway.process and gateway.process.poll() is None:
            gateway.process.kill()
            gateway.process.wait()
        disk.stop()
    print(f"ok   {options.kind} in {time.monotonic() - begin:.0f} s, seed {options.seed}", flush=True)


main()
