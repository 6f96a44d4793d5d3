"""Verified load over NBD on a volume while its paths fail.

    python3 -m conformance.harness.load PROXY-SOCKET NBD-ADDRESS FILE

runs `both_lost_in_turn` for the guest.
"""

import asyncio
import os
import re
import sys
import tempfile
import time

from . import fio
from .case import Failed, Missed
from .nbd import BLOCK, Client, Verifier, address_of
from .proxy import FROM_CLIENT, Proxy

MIB = 1 << 20
# Maximum time until a working path is used again, in seconds.
RETURN_MAX = 10.0
# The parts of the disk: one verifier each, qemu-io and fio.
SINGLE, MANY, QEMU, FIO = 0, 8 * MIB, 64 * MIB, 128 * MIB


class Load:
    """The load on the volume `disk` during a case; `file` is the target's file."""

    def __init__(self, nbd, file):
        self.nbd, self.file, self.until = nbd, file, asyncio.Event()
        # Times that exceeded their target.
        self.verifiers, self.tasks, self.late = [], [], []

    async def verifier(self, first, bytes_, depth, seed, pause=0.0):
        client = await Client.connect(address_of(self.nbd), "disk")
        one = Verifier(client, first // BLOCK, bytes_ // BLOCK, depth, seed, pause)
        self.verifiers.append(one)
        self.start(one.run(self.until))
        return one

    def start(self, work):
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def check(self):
        for task in self.tasks:
            if task.done() and task.exception():
                raise task.exception()

    async def sleep(self, seconds):
        """Ends at once when something fails."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            await asyncio.sleep(min(left, 0.1))

    async def finish(self, seconds=60):
        """Returns the number of verified requests, after checking the target's file."""
        self.until.set()
        _, late = await asyncio.wait(self.tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.check()
        if late:
            raise Failed(f"{len(late)} clients had no answer {seconds} s after the last fault")
        # By now all data in flight on a path has arrived, or the target has refused it.
        await asyncio.sleep(1)
        for verifier in self.verifiers:
            verifier.compare_file(self.file)
            verifier.client.close()
        return sum(len(verifier.done) for verifier in self.verifiers)

    def want(self, good, what):
        """A time or a rate that a busy machine may spoil."""
        if not good:
            self.late.append(what)

    def judge(self):
        if self.late:
            raise Missed("; ".join(self.late))

    def longest(self):
        return max(verifier.longest() for verifier in self.verifiers)

    def held(self, since, repair):
        """Requests that were sent before one moment and ended after the other."""
        return sum(sent <= since and end >= repair for one in self.verifiers for sent, end in one.done)

    async def fio(self, seconds):
        """Verified writes for this time, then a read of all data; returns the longest time of a request in seconds."""
        rate, folder = 400, tempfile.TemporaryDirectory()
        process = await asyncio.create_subprocess_exec(
            *fio.words("verified", f"nbd://{self.nbd}/disk", rw="randwrite", bs="16k", offset=FIO, rate_iops=rate, iodepth=8,
                       size=min(rate * seconds * 16 << 10, 127 * MIB), verify="crc32c", verify_fatal=1, do_verify=1),
            "--output-format=json", "--output=out", "--write_lat_log=v", "--log_avg_msec=0",
            cwd=folder.name, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        job = fio.result(os.path.join(folder.name, "out"))
        if process.returncode or job["error"]:
            raise Failed(f"fio: error {job['error']}: {said.decode()[-800:]}")
        return max(job[kind]["clat_ns"]["max"] for kind in ("read", "write")) / 1e9

    async def qemu_io(self, seconds):
        """Writes, reads back and compares, in several sizes."""
        commands, sizes = [], ["4k", "64k", "256k"]
        for number in range(int(seconds * 15)):
            extent = f"-P {number % 255 + 1} {QEMU + number % 200 * 256 * 1024} {sizes[number % 3]}"
            commands += ["-c", f"aio_write {extent}", "-c", "aio_flush", "-c", f"read {extent}", "-c", "sleep 50"]
        process = await asyncio.create_subprocess_exec(
            "qemu-io", "-f", "raw", "-t", "none", *commands, f"nbd://{self.nbd}/disk",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        text = said.decode()
        wrong = re.findall(r".*(?:failed|error|rror:).*", text)
        if process.returncode or wrong or text.count("read ") < seconds * 15:
            raise Failed(f"qemu-io: status {process.returncode}: {wrong[:3] or text[-300:]}")

    async def in_use(self, proxy, path):
        """Waits until the path carries requests again; returns the time."""
        start = time.monotonic()
        while sum(proxy.bytes_of(path, time.monotonic() - 0.5, time.monotonic(), (FROM_CLIENT,))) < 20_000:
            if time.monotonic() - start > 3 * RETURN_MAX:
                raise Failed(f"path {path} is not used {3 * RETURN_MAX:.0f} s after it came back")
            await self.sleep(0.1)
        if time.monotonic() - start > RETURN_MAX:
            self.late.append(f"path {path} is used {time.monotonic() - start:.1f} s after it came back, {RETURN_MAX:.0f} s wanted")
        return time.monotonic() - start


async def both_lost_in_turn(proxy, nbd, file):
    """Both paths are lost in turn, by different faults; no error, no data loss, and each is used again."""
    load = Load(nbd, file)
    await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 8, 2, 0.01)
    for path, fault in enumerate(("kill", "mute")):
        await load.sleep(2)
        proxy(fault, path)
        await load.sleep(3)
        proxy("up", path)
        await load.in_use(proxy, path)
    total = await load.finish()
    print(f"{total} verified requests, no error; longest {load.longest():.1f} s", flush=True)


if __name__ == "__main__":
    asyncio.run(both_lost_in_turn(Proxy(sys.argv[1]), *sys.argv[2:4]))
