"""Requests that an NBD server must refuse while another client works. Each case uses a separate connection.

A case is an asynchronous function of the server's address and the export's name. The export has at least 1 MiB.
"""

import asyncio
import os
import struct

from ..harness.case import Failed, ok
from ..harness.nbd import (
    ABORT, ACK, DISC, EINVAL, ENOSPC, ENOTSUP, EOVERFLOW, EPERM, EXPORT_NAME, GO, IHAVEOPT, INFO, INVALID, LIST, LIST_META, POLICY, READ,
    REQUEST, SET_META, SIMPLE, STARTTLS, STATUS, STRUCTURED_REPLY, TLS_REQD, TOO_BIG, TRIM, UNKNOWN, UNSUP, WRITE, ZEROES, Client,
    Closed, Error, name_and_requests)


async def still_works(client):
    await asyncio.wait_for(client.request(READ, 0, 4096), 10)


def greeting(data):
    """Begins with data that are not the client's flags."""
    async def send(address, _):
        client = await Client.greet(address, None)
        client.put(data)
        return client
    return send


def option(*arguments, **keywords):
    async def send(address, _):
        client = await Client.greet(address)
        client.option(*arguments, **keywords)
        return client
    return send


def request(*arguments, **keywords):
    async def send(address, export):
        client = await Client.connect(address, export)
        client.request(*arguments, **keywords)
        return client
    return send


def closes(send):
    """The server must answer by closing the connection."""
    async def case(address, export):
        client = await send(address, export)
        await client.must_close()
        client.close()
    return case


def leaves(send):
    """The client closes the connection in the middle of a message."""
    async def case(address, export):
        client = await send(address, export)
        await asyncio.sleep(0.01)
        client.lose = lambda why: None
        client.close()
    return case


def answered(number, data, *kinds):
    """The option must be refused; the negotiation continues."""
    async def case(address, export):
        client = await Client.greet(address)
        client.option(number, data)
        kind = await client.option_reply(number)
        if kind not in kinds:
            raise Failed(f"answered with {kind:x}")
        await still_works(await client.go(export))
        client.close()
    return case


def fails(errors, kind, offset=0, length=0, data=b"", flags=0, beyond=None):
    """The request must fail; the connection continues. `beyond` is an offset from the export's end."""
    async def case(address, export):
        client = await Client.connect(address, export)
        at = offset if beyond is None else client.size + beyond
        try:
            await asyncio.wait_for(client.request(kind, at, length, data, flags), 10)
        except Error as error:
            if error.number not in errors:
                raise
        else:
            raise Failed("the request did not fail")
        await still_works(client)
        client.close()
    return case


async def many_options(address, _):
    """The server answers an endless series of options or closes the connection; it does not crash."""
    client = await Client.greet(address)
    try:
        for _ in range(50):
            for _ in range(100):
                client.option(0x7FFF0000, b"x" * 64)
            for _ in range(100):
                if await client.option_reply(0x7FFF0000) != UNSUP:
                    raise Failed("an unknown option was not refused")
    except Closed:
        pass
    client.close()


async def never_reads(address, export):
    """A client that sends requests and reads no reply."""
    client = await Client.connect(address, export)
    client.listener.cancel()
    try:
        for _ in range(200):
            client.put(100 * struct.pack(">IHHQQI", REQUEST, 0, READ, 7, 0, 1 << 16))
            await asyncio.wait_for(client.writer.drain(), 1)
    except (TimeoutError, OSError):
        pass
    client.writer.transport.abort()


def refused_before_tls(number, data):
    async def case(address, _):
        client = await Client.greet(address)
        client.option(number, data)
        if await client.option_reply(number) != TLS_REQD:
            raise Failed("not refused for lack of TLS")
        client.option(ABORT)
        await client.must_close()
        client.close()
    return case


async def no_tls_client(address, _):
    """A client that requests TLS and then sends other data."""
    client = await Client.greet(address)
    client.option(STARTTLS)
    if await client.option_reply(STARTTLS) != ACK:
        raise Failed("STARTTLS is refused")
    client.put(b"this is no TLS record, " * 100)
    await client.must_close()
    client.close()


HUGE = 0xFFFFFFFF
COMMON = {
    "not NBD at all": closes(greeting(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 8)),
    "noise": closes(greeting(b"\xa5" * 4096)),
    "unknown client flags": closes(greeting(struct.pack(">I", 0x80000001) + b"\0" * 64)),
    "half of the client flags": leaves(greeting(b"\0\0")),
    "a wrong option magic": closes(option(LIST, magic=IHAVEOPT + 1)),
    "half an option": leaves(option(GO, b"abc", length=100)),
    "an option of 4 GiB": closes(option(GO, b"x" * 65536, length=HUGE)),
    "an unknown option": answered(0x1234, b"data", UNSUP),
    "LIST with data": answered(LIST, b"x", INVALID),
    "GO for an unknown export": answered(GO, name_and_requests(b"nobody"), UNKNOWN),
    "GO with a name that is too long": answered(GO, name_and_requests(b"x" * 5000), INVALID, UNKNOWN, TOO_BIG),
    "GO whose name exceeds the option": answered(GO, name_and_requests(b"disk", length=5000), INVALID),
    "GO without requests": answered(GO, struct.pack(">I", 4) + b"disk", INVALID),
    "GO with fewer information requests than announced": answered(GO, struct.pack(">I4sH", 4, b"disk", 9), INVALID),
    "GO without anything": answered(GO, b"", INVALID),
    "GO with a name that is not UTF-8": answered(GO, name_and_requests(b"\xff\xfe"), INVALID, UNKNOWN),
    "STRUCTURED_REPLY with data": answered(STRUCTURED_REPLY, b"x", INVALID),
    "contexts before structured replies": answered(SET_META, struct.pack(">I", 4) + b"disk" + struct.pack(">I", 0), INVALID),
    "truncated contexts": answered(LIST_META, struct.pack(">I", 4) + b"di", INVALID),
    "EXPORT_NAME of an unknown export": closes(option(EXPORT_NAME, b"nobody")),
    "options without end": many_options,
    "a wrong request magic": closes(request(READ, 0, 512, magic=REQUEST ^ 1)),
    "a reply for a request": closes(request(READ, 0, 512, magic=SIMPLE)),
    "half a request": leaves(request(WRITE, 0, 4096, b"x" * 100)),
    "an unknown command": fails([EINVAL, ENOTSUP], 99),
    "unknown command flags": fails([EINVAL], READ, 0, 512, flags=0x4000),
    "a read that begins behind the end": fails([EINVAL], READ, length=512, beyond=0),
    "a read across the end": fails([EINVAL], READ, length=1024, beyond=-512),
    "a read at the largest offset": fails([EINVAL], READ, (1 << 64) - 512, 4096),
    "a read of 4 GiB": fails([EINVAL, EOVERFLOW], READ, 0, HUGE),
    "block status that was not negotiated": fails([EINVAL], STATUS, 0, 4096),
    "a disconnect": closes(request(DISC)),
    "a client that never reads": never_reads,
}
WRITABLE = {
    **COMMON,
    "a write behind the end": fails([EINVAL, ENOSPC], WRITE, length=4096, data=b"x" * 4096, beyond=0),
    "a write across the end": fails([EINVAL, ENOSPC], WRITE, length=4096, data=b"x" * 4096, beyond=-512),
    "a trim across the end": fails([EINVAL, ENOSPC], TRIM, length=4096, beyond=-512),
    "zeroes at the largest offset": fails([EINVAL, ENOSPC], ZEROES, (1 << 64) - 512, 4096),
    "a write of 4 GiB": closes(request(WRITE, 0, HUGE, b"x" * 65536)),
    "STARTTLS with data": answered(STARTTLS, b"x", INVALID, POLICY, UNSUP),
}
READ_ONLY = {
    **COMMON,
    "a write": fails([EPERM], WRITE, 0, 4096, b"x" * 4096),
    "a trim": fails([EPERM], TRIM, 0, 4096),
    "zeroes": fails([EPERM], ZEROES, 0, 4096),
}
BEFORE_TLS = {
    "LIST before TLS": refused_before_tls(LIST, b""),
    "INFO before TLS": refused_before_tls(INFO, name_and_requests(b"disk")),
    "GO before TLS": refused_before_tls(GO, name_and_requests(b"disk")),
    "EXPORT_NAME before TLS": closes(option(EXPORT_NAME, b"disk")),
    "noise instead of TLS": no_tls_client,
}


async def work(address, export, writes, stop):
    """Writes and reads the last 64 KiB of the export until it is stopped; returns the number of rounds."""
    client, rounds = await Client.connect(address, export), 0
    at = client.size - 65536
    while not stop.is_set():
        data = os.urandom(65536)
        if writes:
            await client.request(WRITE, at, 65536, data)
        if await client.request(READ, at, 65536) != data and writes:
            raise Failed("the other client read data that it did not write")
        rounds += 1
    client.close()
    return rounds


async def suite(address, export, cases, neighbour):
    stop, wrong = asyncio.Event(), []
    other = asyncio.ensure_future(work(address, export, cases is WRITABLE, stop)) if neighbour else None
    for name, case in cases.items():
        try:
            await case(address, export)
        except (Failed, OSError, TimeoutError) as error:
            wrong.append(f"{name}: {type(error).__name__} {error}")
    stop.set()
    if other and (rounds := await other) < 10:
        wrong.append(f"the other client worked only {rounds} times")
    if wrong:
        raise Failed(f"{len(wrong)} of {len(cases)} malformed clients: " + "; ".join(wrong))
    ok(f"{len(cases)} malformed clients on {export}" + (f", while another client worked {rounds} times" if other else ""))
