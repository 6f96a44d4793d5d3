"""An NBD client that can also violate the protocol, and a verifier that overwrites its own writes.

Numbers are those of the NBD protocol document.
"""

import asyncio
import random
import struct
import time

from .case import Failed

BLOCK = 4096
SECONDS = 20
NBDMAGIC, IHAVEOPT, REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
REQUEST, SIMPLE = 0x25609513, 0x67446698
FIXED, NO_ZEROES = 1, 2
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META = 1, 2, 3, 5, 6, 7, 8, 9, 10
ACK, REP_SERVER, REP_INFO, REP_META = 1, 2, 3, 4
UNSUP, POLICY, INVALID, TLS_REQD, UNKNOWN, TOO_BIG = ((1 << 31) + n for n in (1, 2, 3, 5, 6, 9))
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)
EPERM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP = 1, 22, 28, 75, 95


class Closed(Failed):
    """The server closed the connection."""


class Error(Failed):
    """A request failed with this error."""

    def __init__(self, number):
        super().__init__(f"a request failed with error {number}")
        self.number = number


class Client:
    """One connection with simple replies. Requests leave in the order in which they are made."""

    @classmethod
    async def greet(cls, address, flags=FIXED | NO_ZEROES):
        """Connects to (host, port), and answers the greeting unless `flags` is None."""
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(*address)
        self.waiting, self.cookie, self.listener = {}, 0, None
        magic, option_magic, _ = struct.unpack(">QQH", await self.take(18))
        if (magic, option_magic) != (NBDMAGIC, IHAVEOPT):
            raise Failed("the server's greeting is not NBD's")
        if flags is not None:
            self.put(struct.pack(">I", flags))
        return self

    @classmethod
    async def connect(cls, address, export):
        """Ready for requests to an export."""
        return await (await cls.greet(address)).go(export)

    def put(self, data):
        self.writer.write(data)

    async def take(self, length):
        try:
            return await asyncio.wait_for(self.reader.readexactly(length), SECONDS)
        except (OSError, asyncio.IncompleteReadError):
            raise Closed("the server closed the connection") from None

    # --- negotiation

    def option(self, number, data=b"", length=None, magic=IHAVEOPT):
        self.put(struct.pack(">QII", magic, number, len(data) if length is None else length) + data)

    async def option_reply(self, number):
        """The type of the last reply to an option."""
        while True:
            magic, option, kind, length = struct.unpack(">QIII", await self.take(20))
            if (magic, option) != (REPLY, number) or length > 1 << 16:
                raise Failed(f"a reply to option {number}: {magic:x} {option}, {length} bytes")
            data = await self.take(length)
            if kind == REP_INFO and data[:2] == b"\0\0":
                self.size, self.flags = struct.unpack(">QH", data[2:12])
            if kind not in (REP_SERVER, REP_INFO, REP_META):
                return kind

    async def go(self, export):
        self.option(GO, name_and_requests(export.encode()))
        kind = await self.option_reply(GO)
        if kind != ACK:
            raise Failed(f"GO was answered with {kind:x}")
        self.listener = asyncio.ensure_future(self.listen())
        return self

    # --- transmission

    async def listen(self):
        try:
            while True:
                magic, error, cookie = struct.unpack(">IIQ", await self.reader.readexactly(16))
                answer, length = self.waiting.pop(cookie, (None, 0))
                if magic != SIMPLE or answer is None:
                    raise Failed(f"a reply begins with {magic:08x}, its cookie is {cookie}")
                if error:
                    answer.set_exception(Error(error))
                else:
                    answer.set_result(await self.reader.readexactly(length) if length else b"")
        except (OSError, asyncio.IncompleteReadError):
            self.lose(Closed("the server closed the connection"))
        except Failed as failed:
            self.lose(failed)

    def lose(self, why):
        for answer, _ in self.waiting.values():
            if not answer.done():
                answer.set_exception(why)

    def request(self, kind, offset=0, length=0, data=b"", flags=0, magic=REQUEST):
        """Sends a request at once; the future has the data of a read, or fails with Error or Closed."""
        self.cookie += 1
        answer = asyncio.get_running_loop().create_future()
        self.waiting[self.cookie] = (answer, length if kind == READ else 0)
        self.put(struct.pack(">IHHQQI", magic, flags, kind, self.cookie, offset, length) + data)
        return answer

    async def must_close(self):
        """The server has to end the connection."""
        for answer, _ in self.waiting.values():
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.listener:
            await asyncio.wait_for(self.listener, SECONDS)
            return
        try:
            while True:
                await self.take(1)
        except Closed:
            pass

    def close(self):
        if self.listener:
            self.listener.cancel()
        self.writer.close()


def address_of(nbd):
    host, port = nbd.rsplit(":", 1)
    return host, int(port)


def name_and_requests(name, *requests, length=None):
    data = struct.pack(">I", len(name) if length is None else length) + name
    return data + struct.pack(">H", len(requests)) + b"".join(struct.pack(">H", one) for one in requests)


MARK = 0x7765697270617468


def stamp(block, sequence):
    """The content of a block: its number and the number of its write, 128 times."""
    return struct.pack(">QQQQ", MARK, block, sequence, ~sequence & (1 << 64) - 1) * (BLOCK // 32)


class Verifier:
    """Keeps `depth` requests outstanding that overlap each other, in the `blocks` blocks from `first` on.

    The gateway guarantees that overlapping requests take effect in order of arrival, so each block of a
    read must have the last write that was sent before it: after an older one a write was lost or
    reverted, a younger one has overtaken the read.
    """

    def __init__(self, client, first, blocks, depth, seed, pause=0.0):
        self.client, self.first, self.blocks, self.depth, self.pause = client, first, blocks, depth, pause
        self.random = random.Random(seed)
        self.sequence, self.last = 0, [0] * blocks
        self.done = []  # (sent, answered) of every request
        self.outstanding = 0

    def extent(self):
        # Mostly small, sometimes as long as several R2T bursts.
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
                what = "holds data that was never written"
            elif mark == MARK and (where, found) != (block, stamp(block, which)):
                what = f"holds parts of several writes, or of block {where}"
            else:
                which = which if mark == MARK else 0
                what = f"holds write {which}, which is {'older' if which < sequence else 'younger'}"
            raise Failed(f"block {block}: write {sequence} was the last one sent before it was read, but it {what}")

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
