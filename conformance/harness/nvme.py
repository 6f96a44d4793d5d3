"""An NVMe/TCP host: queues, each a connection, and streams that keep requests outstanding."""

import random
import socket
import struct
import time

from .case import Failed

HOST = "nqn.2014-08.org.nvmexpress:uuid:2cd5a1f3-9f0d-4bd0-a1f8-2a1b6a3f0c11"
IDENTIFIER = bytes(range(1, 17))
# PDU types, the Fabrics opcode and its types, and I/O opcodes.
IC_REQ, IC_RESP, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 4, 5, 6, 7, 9
FABRICS, PROPERTY_SET, CONNECT = 0x7F, 0, 1
WRITE, READ = 1, 2
ENABLED = 0x460001
BLOCK = 512
# Data of a command that is longer is asked for.
IN_CAPSULE = 8192
SECONDS = 60


def ic_req():
    return struct.pack("<BBBBI", IC_REQ, 0, 128, 0, 128) + bytes(120)


def capsule(opcode, cid, nsid, dwords, inside=b"", length=0):
    """A command with its data in the capsule, or with so much data apart."""
    sgl = struct.pack("<QIHBB", 0, len(inside) or length, 0, 0, 1 if inside else 0x5A)
    dwords = struct.pack("<6I", *dwords, *[0] * (6 - len(dwords)))
    sqe = struct.pack("<BBHI", opcode, 0x40, cid, nsid) + bytes(16) + sgl + dwords
    return struct.pack("<BBBBI", COMMAND, 0, 72, 72 if inside else 0, 72 + len(inside)) + sqe + inside


def connection(subsystem, number, controller, keep_alive_ms=120_000, depth=128):
    """The dwords and the data of a Connect."""
    data = bytearray(1024)
    data[:16] = IDENTIFIER
    struct.pack_into("<H", data, 16, controller)
    data[256:256 + len(subsystem)] = subsystem.encode()
    data[512:512 + len(HOST)] = HOST.encode()
    size = 31 if number == 0 else depth - 1
    return [number << 16, size | 4 << 16, keep_alive_ms], bytes(data)


def connect_command(*arguments):
    """A whole Connect."""
    dwords, data = connection(*arguments)
    return capsule(FABRICS, 0, CONNECT, dwords, data)


class Queue:
    """One connection. Commands are sent at once; `hear` takes one PDU and returns the command that it ends, if any."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unsent, self.next, self.value, self.buffer = {}, 0, 0, bytearray()
        self.socket.sendall(ic_req())
        if self.take(128)[0] != IC_RESP:
            raise Failed("the gateway does not answer ICReq")

    def take(self, length):
        while len(self.buffer) < length:
            more = self.socket.recv(1 << 16)
            if not more:
                raise Failed("the gateway closed an NVMe queue")
            self.buffer += more
        taken, self.buffer = bytes(self.buffer[:length]), self.buffer[length:]
        return taken

    def issue(self, opcode, nsid, dwords, data=None, length=0):
        """Sends a command. `data` goes when it is asked for, or in the capsule if it is short; `length` is read."""
        cid, self.next = self.next, (self.next + 1) % 0xFFF0
        if data is not None and len(data) > IN_CAPSULE:
            self.unsent[cid], length, data = data, len(data), b""
        self.socket.sendall(capsule(opcode, cid, nsid, dwords, data or b"", length))
        return cid

    def hear(self):
        """The identifier and the status of the command that this PDU ends, or None."""
        header = self.take(24)
        kind, flags, _, _, length = struct.unpack_from("<BBBBI", header)
        rest = self.take(length - 24)
        if kind == RESPONSE:
            self.value, _, _, _, cid, status = struct.unpack_from("<IIHHHH", header, 8)
            return cid, status >> 1 & 0x7FF
        if kind == C2H_DATA:
            cid = struct.unpack_from("<H", header, 8)[0]
            return (cid, 0) if flags & 8 else None
        if kind == R2T:
            cid, tag, offset, wanted = struct.unpack_from("<HHII", header, 8)
            data = self.unsent.pop(cid)[offset:offset + wanted]
            self.socket.sendall(struct.pack("<BBBBIHHIII", H2C_DATA, 4, 24, 24, 24 + len(data), cid, tag, offset, len(data), 0) + data)
            return None
        raise Failed(f"an NVMe PDU of type {kind}: {(header + rest)[:64].hex()}")

    def execute(self, *command, **data):
        """Sends a command and waits for its end; it must succeed."""
        cid = self.issue(*command, **data)
        while (ended := self.hear()) is None or ended[0] != cid:
            pass
        if ended[1]:
            raise Failed(f"NVMe command {command[0]:#x} ends with status {ended[1]:#x}")

    def connect(self, subsystem, number, controller):
        """Returns dword 0 of the answer."""
        dwords, data = connection(subsystem, number, controller)
        self.execute(FABRICS, CONNECT, dwords, data=data)
        return self.value


class Controller:
    """An admin queue whose controller is enabled."""

    def __init__(self, address, subsystem):
        self.address, self.subsystem, self.admin = address, subsystem, Queue(address)
        self.id = self.admin.connect(subsystem, 0, 0xFFFF) & 0xFFFF
        self.admin.execute(FABRICS, PROPERTY_SET, [0, 0x14, ENABLED, 0])

    def queue(self, number):
        queue = Queue(self.address)
        queue.connect(self.subsystem, number, self.id)
        return queue


class Stream:
    """Random aligned requests of one size in a region, in one queue."""

    def __init__(self, queue, region, size=16 << 10, depth=32, seed=1):
        self.queue, self.region, self.size, self.depth = queue, region, size, depth
        self.random, self.data, self.outstanding = random.Random(seed), random.Random(seed).randbytes(size), 0

    def submit(self, write):
        start, length = self.region
        lba = (start + self.random.randrange(length // self.size) * self.size) // BLOCK
        words = [lba & 0xFFFFFFFF, lba >> 32, self.size // BLOCK - 1]
        if write:
            self.queue.issue(WRITE, 1, words, data=self.data)
        else:
            self.queue.issue(READ, 1, words, length=self.size)
        self.outstanding += 1

    def run(self, writes=0.0, until=None, count=None):
        """Keeps requests outstanding until a time or for a number, of which the part `writes` are writes. What is outstanding
        at the end of a time stays so, for the next run; after a number all have ended."""
        asked = ended = 0
        while True:
            while self.outstanding < self.depth and (count is None or asked < count):
                self.submit(self.random.random() < writes)
                asked += 1
            if count is not None and ended == count:
                return
            if until is not None and time.monotonic() >= until:
                return
            one = self.queue.hear()
            if one is not None:
                self.outstanding -= 1
                ended += 1
                if one[1]:
                    raise Failed(f"a request ends with status {one[1]:#x}")

    def settle(self):
        """Waits for what is outstanding."""
        while self.outstanding:
            self.outstanding -= self.queue.hear() is not None
