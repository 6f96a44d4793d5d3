"""An NBD client with many requests outstanding, and a verifier that writes over its own writes."""

import asyncio
import random
import struct
import time

BLOCK = 4096
NO_ZEROES, FIXED = 2, 1
READ, WRITE = 0, 1
MARK = 0x7765697270617468


class Broken(Exception):
    """The volume did not keep its word; the text says how."""


class Client:
    """Requests leave in the order in which they are made. Simple replies, one connection."""

    @classmethod
    async def connect(cls, host, port, export):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(host, port)
        await self.reader.readexactly(18)
        name = export.encode()
        self.writer.write(struct.pack(">IQII", FIXED | NO_ZEROES, 0x49484156454F5054, 1, len(name)) + name)
        self.size, _ = struct.unpack(">QH", await self.reader.readexactly(10))
        self.waiting, self.handle = {}, 0
        self.listener = asyncio.ensure_future(self.listen())
        return self

    async def listen(self):
        try:
            while True:
                magic, error, handle = struct.unpack(">IIQ", await self.reader.readexactly(16))
                if magic != 0x67446698:
                    raise Broken(f"a reply begins with {magic:08x}")
                answer, length = self.waiting.pop(handle)
                if error:
                    answer.set_exception(Broken(f"a request failed with error {error}"))
                else:
                    answer.set_result(await self.reader.readexactly(length) if length else b"")
        except (OSError, asyncio.IncompleteReadError):
            for answer, _ in self.waiting.values():
                answer.set_exception(Broken("the gateway closed the connection"))

    def request(self, kind, offset, length, data=b""):
        """Sends at once; the future is the reply."""
        self.handle += 1
        answer = asyncio.get_running_loop().create_future()
        self.waiting[self.handle] = (answer, length if kind == READ else 0)
        self.writer.write(struct.pack(">IHHQQI", 0x25609513, 0, kind, self.handle, offset, length) + data)
        return answer

    def close(self):
        self.listener.cancel()
        self.writer.close()


def stamp(block, sequence):
    """The content of a block: it says where it belongs and which write it is from, 128 times."""
    return struct.pack(">QQQQ", MARK, block, sequence, ~sequence & (1 << 64) - 1) * (BLOCK // 32)


class Verifier:
    """Keeps `depth` requests outstanding that overlap each other, in the `blocks` blocks from `first` on.

    The gateway promises that overlapping requests take effect in the order in which they arrive, so
    a read must bring, block by block, the last write that was sent before it: an older one was lost or
    came back, a younger one has overtaken it.
    """

    def __init__(self, client, first, blocks, depth, seed, pause=0.0):
        self.client, self.first, self.blocks, self.depth, self.pause = client, first, blocks, depth, pause
        self.random = random.Random(seed)
        self.sequence, self.last = 0, [0] * blocks
        self.done = []  # (sent, answered) of every request
        self.outstanding = 0

    def extent(self):
        # Mostly small, sometimes as long as what a target asks for in several bursts.
        length = min(self.random.choice([1, 1, 1, 2, 2, 4, 8, 16, 64]), self.blocks)
        return self.random.randrange(self.blocks - length + 1), length

    async def write(self, at, length):
        self.sequence += 1
        self.last[at:at + length] = [self.sequence] * length
        data = b"".join(stamp(self.first + block, self.sequence) for block in range(at, at + length))
        await self.client.request(WRITE, (self.first + at) * BLOCK, len(data), data)

    async def read(self, at, length):
        expected = self.last[at:at + length]
        data = await self.client.request(READ, (self.first + at) * BLOCK, length * BLOCK)
        self.compare(at, expected, data)

    def compare(self, at, expected, data):
        for index, sequence in enumerate(expected):
            block, found = self.first + at + index, data[index * BLOCK:(index + 1) * BLOCK]
            if found == (stamp(block, sequence) if sequence else bytes(BLOCK)):
                continue
            mark, where, which, _ = struct.unpack(">QQQQ", found[:32])
            if mark != MARK and any(found):
                what = "holds what nobody wrote"
            elif mark == MARK and (where, found) != (block, stamp(block, which)):
                what = f"holds parts of several writes, or of block {where}"
            else:
                which = which if mark == MARK else 0
                what = f"holds write {which}, which is {'older' if which < sequence else 'younger'}"
            raise Broken(f"block {block}: write {sequence} was the last one sent before it was read, but it {what}")

    async def worker(self, until):
        while not until.is_set():
            at, length = self.extent()
            sent = time.monotonic()
            self.outstanding += 1
            await (self.write if self.random.random() < 0.6 else self.read)(at, length)
            self.outstanding -= 1
            self.done.append((sent, time.monotonic()))
            if self.pause:
                await asyncio.sleep(self.pause)

    async def run(self, until):
        await asyncio.gather(*(self.worker(until) for _ in range(self.depth)))
        for at in range(0, self.blocks, 64):
            await self.read(at, min(64, self.blocks - at))

    def compare_file(self, path):
        with open(path, "rb") as file:
            file.seek(self.first * BLOCK)
            self.compare(0, self.last, file.read(self.blocks * BLOCK))

    def longest(self, since=0.0):
        return max((end - sent for sent, end in self.done if end >= since), default=0.0)
