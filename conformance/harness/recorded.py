"""A disk whose writes and flushes are recorded, so that its power can be cut at any of them.

QEMU's blklogwrites writes the format of the kernel's dm-log-writes; its disk is a file here, by FUSE.

A cut may lose writes that no flush has covered: each such write is present, lost, or torn, with any
subset of its physical blocks. An unfair cut loses flushed writes, too, which no disk may do.
"""

import os
import random
import signal
import struct
import subprocess
import time

from .case import Failed

SECTOR = 512
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD = 1, 2, 4
SECONDS = 20


class Entry:
    """One write, discard or flush; `at` is the offset of its data in the record."""

    __slots__ = ("first", "count", "flags", "at")

    def __init__(self, first, count, flags, at):
        self.first, self.count, self.flags, self.at = first, count, flags, at


def entries(path):
    found = []
    with open(path, "rb") as file:
        head = file.read(28)
        if not head:  # Nothing has been written.
            return found
        magic, version, number, sector = struct.unpack("<QQQI", head)
        if (magic, version, sector) != (MAGIC, 1, SECTOR):
            raise Failed(f"{path} is no record of writes in sectors of {SECTOR} bytes")
        at = SECTOR
        for _ in range(number):
            file.seek(at)
            first, count, flags, _ = struct.unpack("<QQQQ", file.read(32))
            at += SECTOR
            found.append(Entry(first, count, flags, at))
            if not flags & DISCARD:
                at += count * SECTOR
    return found


def cut(base, record, out, point, seed, block=1, unfair_from=None):
    """Creates `out`, the disk after a power cut behind `point` entries; returns how many of the unflushed writes are
    present, lost and torn. The disk writes `block` aligned sectors at once. From `unfair_from` on it loses flushed
    writes."""
    chance, recorded = random.Random(seed), entries(record)[:point]
    flushed = max((i for i, one in enumerate(recorded) if one.flags & FLUSH), default=-1)
    safe = flushed if unfair_from is None else unfair_from - 1
    copy(base, out)
    fates = [0, 0, 0]
    with open(record, "rb") as source, open(out, "r+b") as image:
        for index, one in enumerate(recorded):
            if not one.count:
                continue
            fate = 0
            if index > safe and (unfair_from is not None or not one.flags & FUA):
                fate = chance.randrange(3)
                fates[fate] += 1
            if fate == 1:
                continue
            source.seek(one.at)
            data = bytes(one.count * SECTOR) if one.flags & DISCARD else source.read(one.count * SECTOR)
            if fate == 0:
                image.seek(one.first * SECTOR)
                image.write(data)
                continue
            at, end = one.first, one.first + one.count
            while at < end:
                stop = min((at // block + 1) * block, end)
                if chance.random() < 0.5:
                    image.seek(at * SECTOR)
                    image.write(data[(at - one.first) * SECTOR:(stop - one.first) * SECTOR])
                at = stop
    return fates


def copy(one, other):
    """Holes stay holes."""
    subprocess.run(["cp", "--sparse=always", one, other], check=True)


class Disk:
    """Exports `base` as the file `place` and records its writes in `record`.

    For buffered I/O: QEMU 7.2 mixes up the data of concurrent writes by FUSE; the page cache sends them one after the
    other.
    """

    def __init__(self, run, base, record, place):
        self.run = run
        self.base, self.record, self.place, self.process = str(base), str(record), str(place), None

    def start(self):
        # What is written goes there as well; the base stays what it was.
        copy(self.base, self.base + ".now")
        open(self.record, "wb").close()
        open(self.place, "ab").close()
        size = os.path.getsize(self.base)
        self.process = self.run.spawn(
            "qemu-storage-daemon", "--blockdev", f"driver=file,node-name=file,filename={self.base}.now",
            "--blockdev", f"driver=file,node-name=record,filename={self.record}",
            "--blockdev", f"driver=blklogwrites,node-name=disk,file=file,log=record,log-sector-size={SECTOR},"
            "log-super-update-interval=1",
            "--export", f"type=fuse,id=export,node-name=disk,mountpoint={self.place},writable=on")
        self.run.defer(self.stop)
        # The file below it is empty.
        for _ in range(SECONDS * 100):
            if os.path.getsize(self.place) == size:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise Failed(f"qemu-storage-daemon does not export {self.base}")

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(SECONDS)
            self.process = None

    def cut_power(self, seed, point):
        """Cuts the power after `point` entries, with the gateway gone; the result is the base of the next start."""
        self.stop()
        after = self.base + ".cut"
        fates = cut(self.base, self.record, after, point, seed)
        os.replace(after, self.base)
        return fates
