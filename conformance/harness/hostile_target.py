"""iSCSI targets that violate the protocol, each in a different way.

    python3 -m conformance.harness.hostile_target SOCKET

Each has two portals on free ports of the loopback address: one where it works, and one where it works
until the fault is due: at an answer in login (L:...), at an answer to a SCSI command (C:...), at one to a
read or write of the medium (M:...), or when N PDUs have come (close:N, cut:N, mute:N). LUN 1 is a unit
of a MiB in memory. Numbers are those of RFC 7143.

Prints one line of JSON, {fault: [good port, bad port]}. Answers each line on the Unix socket SOCKET: `off` takes the
good portals out of service, `on` brings them back, anything else gives {fault: connections so far}. `Hostile` starts that.
"""

import asyncio
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys

NAME = "iqn.2026-11.org.example:hostile"
BLOCKS = 2048
NOP_OUT, COMMAND, TASK, LOGIN, TEXT, DATA_OUT, LOGOUT = 0, 1, 2, 3, 4, 5, 6
NOP_IN, RESPONSE, TASK_DONE, LOGIN_DONE, TEXT_DONE, DATA_IN, LOGOUT_DONE = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26
R2T, ASYNC, REJECT = 0x31, 0x32, 0x3F
NONE = 0xFFFFFFFF
ENDLESS = 1 << 30  # bytes that no initiator should accept
PORTION = 8 << 10  # of those, in one go

# The target's answers to negotiated keys; other keys are echoed or answered NotUnderstood.
KEYS = {
    "AuthMethod": "None", "HeaderDigest": "None", "DataDigest": "None", "InitialR2T": "Yes", "ImmediateData": "Yes",
    "MaxRecvDataSegmentLength": "65536", "MaxBurstLength": "65536", "FirstBurstLength": "65536", "MaxConnections": "1",
    "MaxOutstandingR2T": "1", "ErrorRecoveryLevel": "0", "DefaultTime2Wait": "2", "DefaultTime2Retain": "0",
    "DataPDUInOrder": "Yes", "DataSequenceInOrder": "Yes",
}
SILENT = {"InitiatorName", "TargetName", "SessionType", "InitiatorAlias"}

# Changes to one PDU, wherever it comes: header (48 bytes) and data.
BENT = {
    "oversized": lambda h, d: (h[:5] + b"\xff\xff\xff" + h[8:], d),
    "ahs": lambda h, d: (h[:4] + b"\xff" + h[5:], d),
    "wrong-tag": lambda h, d: (h[:16] + bytes(byte ^ 0x55 for byte in h[16:20]) + h[20:], d),
    "opcode": lambda h, d: (b"\x3e" + h[1:], d),
    "out-of-window": lambda h, d: (h[:28] + struct.pack(">II", 0x7FFF0000, 0x7FFF0040) + h[36:], d),
    "stat-sn": lambda h, d: (h[:24] + struct.pack(">I", 0x40000000) + h[28:], d),
    "garbage": lambda h, d: (bytes(range(200, 248)), b"\xa5" * 512),
}
# Login statuses, and texts that no target may send.
STATUSES = {"L:denied": 0x0201, "L:forbidden": 0x0202, "L:no-target": 0x0203, "L:busy": 0x0301, "L:failed": 0x0300,
            "L:class": 0x0900, "L:moved-nowhere": 0x0101}
TEXTS = {
    "L:no-equals": b"MaxBurstLength\0", "L:not-text": b"\xff\xfe=\x80\0", "L:no-end": b"X" * 8192,
    "L:burst-0": b"MaxBurstLength=0\0", "L:burst-huge": b"MaxBurstLength=99999999999999999999\0",
    "L:digest": b"HeaderDigest=MD5\0", "L:twice": b"MaxBurstLength=512\0MaxBurstLength=1024\0",
    "L:unasked": b"SendTargets=All\0",
}
LOGIN_FAULTS = ["L:never", "L:continue", "L:stage", "L:back", "L:version", "L:endless", "L:moved-here", "L:tsih", "L:drip"]
COMMAND_FAULTS = [
    "C:data-unknown", "C:data-offset", "C:data-more", "C:data-endless", "C:data-sn", "C:r2t-for-read", "C:r2t-range",
    "C:r2t-endless", "C:nop-flood", "C:nop-silent", "C:sense", "C:twice", "C:reject", "C:drop", "C:text", "C:login", "C:mute",
    "C:busy", "C:full", "C:attention", "C:status", "C:residual", "C:less", "C:closed-window", "C:nothing", "C:endless",
    # Legal refusals of a read or write, or the initiator does not read the unit again.
    "C:conflict", "C:capacity-0", "C:capacity-huge", "C:block-0", "C:block-3", "C:tape", "C:other-unit",
]
READS, WRITES = (0x08, 0x28, 0x88), (0x0A, 0x2A, 0x8A)
FAULTS = ([f"close:{number}" for number in range(12)] + [f"cut:{number}" for number in range(1, 6)]
          + [f"mute:{number}" for number in range(1, 6)] + [f"{stage}:{bent}" for stage in "LC" for bent in BENT]
          + list(STATUSES) + list(TEXTS) + LOGIN_FAULTS + COMMAND_FAULTS
          + ["M:" + fault for fault in BENT] + ["M" + fault[1:] for fault in COMMAND_FAULTS[:COMMAND_FAULTS.index("C:conflict")]])


class Hostile:
    """The process of all these targets."""

    def __init__(self, run):
        place = run.fresh("hostile") / "socket"
        process = run.spawn(sys.executable, "-m", __name__, place, stdout=subprocess.PIPE, text=True,
                            cwd=pathlib.Path(__file__).parents[2], env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.ports = json.loads(process.stdout.readline())
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(place))
        self.answers = self.socket.makefile()

    def __call__(self, order):
        self.socket.sendall(f"{order}\n".encode())
        return json.loads(self.answers.readline())


class Target:
    """The common state of the two portals."""

    def __init__(self, fault, number):
        self.fault, self.number, self.ports = fault, number, []
        self.medium, self.sessions, self.connections = bytearray(BLOCKS * 512), {}, 0
        self.open = set()  # writers of the good portal


class Session:
    def __init__(self, target, fault, port, reader, writer):
        self.target, self.fault, self.port, self.reader, self.writer = target, fault, port, reader, writer
        self.later = []  # PDUs that arrived while data was awaited
        self.received, self.stat, self.expected, self.window, self.tag = 0, 1, 1, 64, 0
        kind, _, number = fault.partition(":")
        self.kind = kind
        self.due = int(number) if number.isdigit() else None
        self.bent = BENT.get(number)

    async def put(self, header, data=b""):
        if self.kind == "cut" and self.received >= self.due:
            self.writer.write(header[:20])
            await self.writer.drain()
            raise ConnectionError
        self.writer.write(header + data + bytes(-len(data) % 4))
        await self.writer.drain()

    def header(self, opcode, flags, length, tag, fields=b"", lun=bytes(8), transfer=NONE, status=True):
        stat = self.stat
        if status:
            self.stat += 1
        last = self.expected + self.window - 1
        head = struct.pack(">BBHI", opcode, flags >> 8 & 0xFF, flags & 0xFFFF, length) if flags > 0xFF else \
            struct.pack(">BBHI", opcode, flags, 0, length)
        return (head + lun + struct.pack(">IIIII", tag, transfer, stat, self.expected & NONE, last & NONE) + fields).ljust(48, b"\0")

    async def run(self):
        if (self.kind, self.due) == ("close", 0):
            return
        while True:
            header, data = self.later.pop(0) if self.later else await self.pdu()
            self.received += 1
            if self.kind == "close" and self.received >= self.due:
                return
            if self.kind == "mute" and self.received >= self.due:
                await asyncio.sleep(3600)
            opcode, (self.tag, sequence) = header[0] & 0x3F, struct.unpack(">I4xI", header[16:28])
            if not header[0] & 0x40 and opcode in (COMMAND, NOP_OUT, TASK, TEXT, LOGOUT):
                self.expected = sequence + 1
            await {LOGIN: self.login, COMMAND: self.command, NOP_OUT: self.nop, TASK: self.task,
                   LOGOUT: self.logout, DATA_OUT: self.nothing}.get(opcode, self.nothing)(header, data)

    async def pdu(self):
        header = await self.reader.readexactly(48)
        length = int.from_bytes(header[5:8], "big")
        data = await self.reader.readexactly(header[4] * 4 + length + -length % 4)
        return header, data[header[4] * 4:][:length]

    async def nothing(self, header, data):
        pass

    async def hear_nothing(self):
        while await self.reader.read(65536):
            pass

    async def nop(self, header, data):
        if self.tag != NONE:
            await self.put(self.header(NOP_IN, 0x80, len(data), self.tag, lun=header[8:16]), data)

    async def task(self, header, data):
        await self.put(self.header(TASK_DONE, 0x80, 0, self.tag))

    async def logout(self, header, data):
        await self.put(self.header(LOGOUT_DONE, 0x80, 0, self.tag))
        raise ConnectionError

    # --- login

    async def login(self, header, data):
        if self.received == 1:
            # Session reinstatement (section 6.3.5): there is one session of an initiator port.
            old = self.target.sessions.get(header[8:14])
            if old is not None:
                old.writer.transport.abort()
            self.target.sessions[header[8:14]] = self
            self.expected = struct.unpack(">I", header[24:28])[0]
        transit, current, following = header[1] & 0x80, header[1] >> 2 & 3, header[1] & 3
        answers = [] if self.received > 1 else [b"TargetPortalGroupTag=1"]
        for item in data.split(b"\0"):
            key, _, value = item.decode().partition("=")
            if key and key not in SILENT:
                answers.append(f"{key}={KEYS.get(key, 'NotUnderstood')}".encode())
        text = b"".join(answer + b"\0" for answer in answers)
        flags, version, status, tsih = header[1] & 0x8F, 0, 0, header[14:16]
        if transit and following == 3:
            tsih = b"\0\1"
        fault = self.fault
        if fault in STATUSES:
            status = STATUSES[fault]
        elif fault in TEXTS:
            text += TEXTS[fault]
        elif fault == "L:moved-here":
            status, text = 0x0101, f"TargetAddress=127.0.0.1:{self.port}\0".encode()
        elif fault == "L:never":
            flags &= 0x0C
        elif fault == "L:continue":
            flags, text = flags & 0x0C | 0x40, b"X-long=" + b"y" * 8000
        elif fault == "L:stage":
            flags |= 2
        elif fault == "L:back":
            flags = 0x81 if current else 0x80
        elif fault == "L:version":
            version = 5
        elif fault == "L:tsih":
            tsih = b"\0\0"
        answer = (struct.pack(">BBBBI", LOGIN_DONE, flags, version, version, len(text)) + header[8:14] + tsih
                  + struct.pack(">IIIII", self.tag, 0, self.stat, self.expected, self.expected + self.window - 1)
                  + struct.pack(">H", status)).ljust(48, b"\0")
        self.stat += 1
        if self.kind == "L" and self.bent:
            answer, text = self.bent(answer, text)
            await self.put(answer, text)
            await self.flood(b"z" * PORTION)
        if fault == "L:endless":
            await self.flood(answer + text + bytes(-len(text) % 4))
        if fault == "L:drip":
            for byte in answer + text:
                self.writer.write(bytes([byte]))
                await self.writer.drain()
                await asyncio.sleep(0.5)
        await self.put(answer, text)

    async def flood(self, piece):
        """Sends it repeatedly, at a rate that leaves CPU time for the other targets."""
        piece *= max(1, PORTION // len(piece))
        for _ in range(ENDLESS // len(piece)):
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.001)

    # --- commands

    async def command(self, header, data):
        cdb, expected = header[32:48], struct.unpack(">I", header[20:24])[0]
        self.armed = self.kind == "C" or self.kind == "M" and cdb[0] in READS + WRITES
        if self.armed and await self.misbehave(cdb, expected):
            return
        if cdb[0] in WRITES:
            if expected > len(data):
                data += await self.solicit(len(data), expected)
            at = 512 * place(cdb)
            if at + len(data) <= len(self.target.medium):
                self.target.medium[at:at + len(data)] = data
        answer = self.answer(cdb, expected)
        await self.good(answer, expected)

    async def good(self, answer, expected):
        for at in range(0, len(answer), 65536):
            piece = answer[at:at + 65536]
            last = at + len(piece) == len(answer)
            fields = struct.pack(">III", at // 65536, at, expected - len(answer) if last else 0)
            flags = 0x80 if last else 0
            if last:
                flags |= 0x01 | (0x02 if expected > len(answer) else 0)
            header = self.header(DATA_IN, flags, len(piece), self.tag, fields, status=last)
            await self.send(header, piece)
        if not answer:
            await self.send(self.header(RESPONSE, 0x80, 0, self.tag, transfer=0))

    async def send(self, header, data=b""):
        if self.armed and self.bent:
            await self.put(*self.bent(header, data))
            await self.flood(b"z" * PORTION)
        await self.put(header, data)
        if self.armed and self.fault[2:] == "twice":
            await self.put(header, data)

    async def solicit(self, start, expected):
        at, number, data = start, 0, b""
        while at < expected:
            length = min(65536, expected - at)
            await self.put(self.header(R2T, 0x80, 0, self.tag, struct.pack(">III", number, at, length), transfer=7, status=False))
            while length:
                header, piece = await self.pdu()
                if header[0] & 0x3F == DATA_OUT:
                    data, length, at = data + piece, length - len(piece), at + len(piece)
                else:
                    self.later.append((header, piece))
            number += 1
        return data

    async def refuse(self, status, sense=b"", length=None):
        data = struct.pack(">H", len(sense) if length is None else length) + sense if sense else b""
        header = self.header(RESPONSE, 0x80, len(data), self.tag, transfer=0)
        await self.put(header[:2] + bytes([0, status]) + header[4:], data)

    async def misbehave(self, cdb, expected):
        """Whether the fault is the only answer to this command. Most faults wait for a command with data."""
        fault = self.fault[2:]
        statuses = {"busy": 0x08, "full": 0x28, "conflict": 0x18, "status": 0x77}
        if fault in statuses:
            await self.refuse(statuses[fault])
        elif fault == "attention":
            await self.refuse(2, bytes([0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0]))
        elif fault == "sense":
            await self.refuse(2, bytes([0x70, 0, 5]), 0xFFF0)
        elif fault == "mute":
            await asyncio.sleep(3600)
        elif fault == "closed-window":
            self.window = 0
            return False
        elif fault == "drop":
            header = self.header(ASYNC, 0x80, 0, NONE, b"\0\0\2" + bytes([1]) + b"\0\0\0\0")
            await self.put(header)
        elif fault == "reject":
            await self.put(self.header(REJECT, 0x80, 48, NONE)[:2] + b"\x04" + self.header(REJECT, 0x80, 48, NONE)[3:], bytes(48))
        elif fault == "text":
            await self.put(self.header(TEXT_DONE, 0x80, 4, 0x1234), b"a=b\0")
        elif fault == "login":
            await self.put(self.header(LOGIN_DONE, 0x87, 0, self.tag))
        elif fault in ("nop-flood", "nop-silent"):
            ping = self.header(NOP_IN, 0x80, 0, NONE, transfer=9, status=False)
            if fault == "nop-silent":
                await self.flood(ping)  # and reads none of the answers
            answers = asyncio.ensure_future(self.hear_nothing())
            try:
                await self.flood(ping)
            finally:
                answers.cancel()
        elif fault == "r2t-for-read" and expected:
            await self.put(self.header(R2T, 0x80, 0, self.tag, struct.pack(">III", 0, 0, expected), transfer=7, status=False))
        elif not expected:
            return False
        elif fault == "data-unknown":
            await self.put(self.header(DATA_IN, 0x80, 4, self.tag ^ 0x1111, struct.pack(">III", 0, 0, 0), status=False), b"aaaa")
        elif fault == "data-offset":
            await self.put(self.header(DATA_IN, 0x81, 4, self.tag, struct.pack(">III", 0, 0x7FFFFFF0, 0)), b"aaaa")
        elif fault == "data-more":
            await self.put(self.header(DATA_IN, 0x81, expected + 4096, self.tag, struct.pack(">III", 0, 0, 0)), bytes(expected + 4096))
        elif fault == "data-sn":
            await self.put(self.header(DATA_IN, 0x81, 4, self.tag, struct.pack(">III", 77, 0, expected - 4)), b"aaaa")
        elif fault == "data-endless":
            await self.flood(self.header(DATA_IN, 0, 4, self.tag, struct.pack(">III", 0, 0, 0), status=False) + b"aaaa")
        elif fault == "r2t-range":
            await self.put(self.header(R2T, 0x80, 0, self.tag, struct.pack(">III", 0, 0x7FFFF000, 65536), transfer=7, status=False))
        elif fault == "r2t-endless":
            await self.flood(self.header(R2T, 0x80, 0, self.tag, struct.pack(">III", 0, 0, 512), transfer=7, status=False))
        elif fault == "residual":
            await self.put(self.header(DATA_IN, 0x87, 4, self.tag, struct.pack(">III", 0, 0, 0xFFFFFFFF)), b"aaaa")
        elif fault == "less":
            await self.put(self.header(DATA_IN, 0x81, 4, self.tag, struct.pack(">III", 0, 0, 0)), b"aaaa")
        elif cdb[0] in WRITES:
            return False  # an initiator cannot detect a target that acknowledges a write and drops it
        elif fault == "nothing":
            await self.put(self.header(RESPONSE, 0x80, 0, self.tag, transfer=0))
        elif fault == "endless":
            await self.flood(self.header(RESPONSE, 0x80, 0, self.tag, transfer=0))
        else:
            return False
        return True

    def answer(self, cdb, expected):
        """The data of a command without a fault."""
        blocks, size = BLOCKS, 512
        if self.fault == "C:capacity-0":
            blocks = 0
        elif self.fault == "C:capacity-huge":
            blocks = 1 << 64
        elif self.fault in ("C:block-0", "C:block-3"):
            size = int(self.fault[-1])
        kind = 1 if self.fault == "C:tape" else 0
        identity = 0xFFFF if self.fault == "C:other-unit" else self.target.number
        operation = cdb[0]
        if operation == 0x12 and cdb[1] & 1:
            pages = {0x00: bytes([0, 0x80, 0x83]), 0x80: b"hostile1", 0x83: bytes([0x01, 0x03, 0, 8]) + b"\x30weir" + bytes([0, identity >> 8, identity & 0xFF])}
            data = pages.get(cdb[2], b"")
            data = bytes([kind, cdb[2], 0, len(data)]) + data
        elif operation == 0x12:
            data = bytes([kind, 0, 6, 2, 31, 0, 0, 2]) + b"HOSTILE TARGET          0001"
        elif operation == 0x25:
            data = struct.pack(">II", min(blocks - 1, NONE) & NONE, size)
        elif operation == 0x9E:
            data = struct.pack(">QI", (blocks - 1) & (1 << 64) - 1, size).ljust(32, b"\0")
        elif operation == 0xA0:
            data = struct.pack(">II", 8, 0) + b"\0\1" + bytes(6)
        elif operation == 0x1A:
            data = bytes([3, 0, 0, 0])
        elif operation == 0x5A:
            data = bytes([0, 6, 0, 0, 0, 0, 0, 0])
        elif operation in READS:
            data = bytes(self.target.medium[512 * place(cdb):][:expected])
        else:
            data = b""
        return data[:expected]


def place(cdb):
    """The first block of a command that reads or writes."""
    if cdb[0] in (0x08, 0x0A):
        return int.from_bytes(cdb[1:4], "big") & 0x1FFFFF
    return int.from_bytes(cdb[2:6] if cdb[0] < 0x80 else cdb[2:10], "big")


async def main():
    targets, on = [Target(fault, number) for number, fault in enumerate(FAULTS)], True

    async def listen(target, fault):
        async def serve(reader, writer):
            target.connections += 1
            if fault == "none":
                target.open.add(writer)
            try:
                if on or fault != "none":
                    await Session(target, fault, target.ports[fault != "none"], reader, writer).run()
            except (OSError, asyncio.IncompleteReadError):
                pass
            target.open.discard(writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        target.ports.append(server.sockets[0].getsockname()[1])

    async def obey(reader, writer):
        nonlocal on
        while order := (await reader.readline()).decode().strip():
            if order in ("on", "off"):
                on = order == "on"
            for target in targets:
                for one in [] if on else list(target.open):
                    one.transport.abort()
            writer.write(json.dumps({target.fault: target.connections for target in targets}).encode() + b"\n")

    for target in targets:
        await listen(target, "none")
        await listen(target, target.fault)
    server = await asyncio.start_unix_server(obey, sys.argv[1])
    print(json.dumps({target.fault: target.ports for target in targets}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
