#!/usr/bin/env python3
"""Sends an NBD server what it must refuse, while another client goes on working.

    nbd_malformed.py HOST PORT EXPORT [read-only|tls-required]

Numbers are those of the NBD protocol document. Each case is a connection of its own; the other client
writes and reads back all the while, and must not notice. The export must have at least 1 MiB.
"""

import os
import socket
import struct
import sys
import threading

SECONDS = 10
NBDMAGIC, IHAVEOPT, REPLY = 0x4e42444d41474943, 0x49484156454f5054, 0x3e889045565a9
REQUEST, SIMPLE, STRUCTURED = 0x25609513, 0x67446698, 0x668e33ef
FIXED, NO_ZEROES = 1, 2
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META = 1, 2, 3, 5, 6, 7, 8, 9, 10
ACK, REP_INFO = 1, 3
UNSUP, POLICY, INVALID, TLS_REQD, UNKNOWN, TOO_BIG = ((1 << 31) + n for n in (1, 2, 3, 5, 6, 9))
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)
EPERM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP = 1, 22, 28, 75, 95

ADDRESS, EXPORT = (sys.argv[1], int(sys.argv[2])), sys.argv[3].encode()


class Closed(Exception):
    """The server closed the connection."""


class Client:
    def __init__(self, flags=FIXED | NO_ZEROES):
        self.socket = socket.create_connection(ADDRESS, timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        magic, option_magic, _ = struct.unpack(">QQH", self.take(18))
        assert (magic, option_magic) == (NBDMAGIC, IHAVEOPT), "the server's greeting"
        if flags is not None:
            self.put(struct.pack(">I", flags))

    def put(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def take(self, length):
        data = b""
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed
            data += more
        return data

    def option(self, number, data=b"", length=None, magic=IHAVEOPT):
        self.put(struct.pack(">QII", magic, number, len(data) if length is None else length) + data)

    def option_reply(self, number):
        """The type of the last reply to an option."""
        while True:
            magic, option, kind, length = struct.unpack(">QIII", self.take(20))
            assert (magic, option) == (REPLY, number), f"a reply to option {number}: {magic:x} {option}"
            assert length <= 1 << 16, f"{length} bytes in a reply"
            data = self.take(length)
            if kind == REP_INFO and data[:2] == b"\0\0":
                self.size, self.flags = struct.unpack(">QH", data[2:12])
            if kind not in (REP_INFO, 2, 4):
                return kind

    def go(self):
        self.option(GO, name_and_requests(EXPORT))
        kind = self.option_reply(GO)
        assert kind == ACK, f"GO was answered with {kind:x}"
        return self

    def request(self, kind, offset=0, length=0, data=b"", flags=0, magic=REQUEST, cookie=7):
        self.put(struct.pack(">IHHQQI", magic, flags, kind, cookie, offset, length) + data)

    def reply(self, length=0):
        """The error of a simple reply, after `length` bytes of data if there is none."""
        magic, error, cookie = struct.unpack(">IIQ", self.take(16))
        assert (magic, cookie) == (SIMPLE, 7), f"a simple reply: {magic:x} {cookie}"
        if error == 0:
            self.data = self.take(length)
        return error

    def still_works(self):
        self.request(READ, 0, 4096)
        assert self.reply(4096) == 0, "a good read after the bad request"

    def must_close(self):
        try:
            while True:
                self.take(1)
        except Closed:
            pass


def name_and_requests(name, *requests, length=None):
    data = struct.pack(">I", len(name) if length is None else length) + name
    return data + struct.pack(">H", len(requests)) + b"".join(struct.pack(">H", one) for one in requests)


def closes(send):
    """A case that the server must answer by closing."""
    def case():
        client = send()
        client.must_close()
    return case


def answered(number, data, *kinds):
    """A case of an option that must be refused; the negotiation goes on."""
    def case():
        client = Client()
        client.option(number, data)
        kind = client.option_reply(number)
        assert kind in kinds, f"answered with {kind:x}"
        client.go().still_works()
    return case


def fails(errors, *arguments, **keywords):
    """A case of a request that must fail; the connection goes on."""
    def case():
        client = Client().go()
        offset = keywords.get("beyond")
        words = {key: value for key, value in keywords.items() if key != "beyond"}
        if offset is not None:
            words["offset"] = client.size + offset
        client.request(*arguments, **words)
        error = client.reply()
        assert error in errors, f"error {error}"
        client.still_works()
    return case


def greeting(data):
    def send():
        client = Client(flags=None)
        client.put(data)
        return client
    return send


def raw_option(*arguments, **keywords):
    def send():
        client = Client()
        client.option(*arguments, **keywords)
        return client
    return send


def raw_request(*arguments, **keywords):
    def send():
        client = Client().go()
        client.request(*arguments, **keywords)
        return client
    return send


def leaves(prepare):
    """A case of a client that goes away in the middle."""
    def case():
        prepare().socket.close()
    return case


def many_options():
    """Options without end are answered, or the server has enough of it; it does not fall over."""
    client = Client()
    try:
        for _ in range(5000):
            client.option(0x7fff0000, b"x" * 64)
            assert client.option_reply(0x7fff0000) == UNSUP
    except Closed:
        pass


def never_reads():
    """A client that asks and asks and takes nothing."""
    client = Client().go()
    client.socket.settimeout(1)
    try:
        for _ in range(20000):
            client.request(READ, 0, 1 << 16)
    except (TimeoutError, Closed):
        pass
    client.socket.close()


HUGE = 0xffffffff
COMMON = {
    "not NBD at all": closes(greeting(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 8)),
    "noise": closes(greeting(b"\xa5" * 4096)),
    "unknown client flags": closes(greeting(struct.pack(">I", 0x80000001) + b"\0" * 64)),
    "half of the client flags": leaves(greeting(b"\0\0")),
    "a wrong option magic": closes(raw_option(LIST, magic=IHAVEOPT + 1)),
    "half an option": leaves(raw_option(GO, b"abc", length=100)),
    "an option of 4 GiB": closes(raw_option(GO, b"x" * 65536, length=HUGE)),
    "an unknown option": answered(0x1234, b"data", UNSUP),
    "LIST with data": answered(LIST, b"x", INVALID),
    "GO for an unknown export": answered(GO, name_and_requests(b"nobody"), UNKNOWN),
    "GO with a name that is too long": answered(GO, name_and_requests(b"x" * 5000), INVALID, UNKNOWN, TOO_BIG),
    "GO whose name reaches out of it": answered(GO, name_and_requests(b"disk", length=5000), INVALID),
    "GO without requests": answered(GO, struct.pack(">I", 4) + b"disk", INVALID),
    "GO with fewer requests than it says": answered(GO, struct.pack(">I4sH", 4, b"disk", 9), INVALID),
    "GO without anything": answered(GO, b"", INVALID),
    "GO with a name that is not UTF-8": answered(GO, name_and_requests(b"\xff\xfe"), INVALID, UNKNOWN),
    "STRUCTURED_REPLY with data": answered(STRUCTURED_REPLY, b"x", INVALID),
    "contexts before structured replies":
        answered(SET_META, struct.pack(">I", len(EXPORT)) + EXPORT + struct.pack(">I", 0), INVALID),
    "contexts that are cut off": answered(LIST_META, struct.pack(">I", 4) + b"di", INVALID),
    "EXPORT_NAME of an unknown export": closes(raw_option(EXPORT_NAME, b"nobody")),
    "options without end": many_options,
    "a wrong request magic": closes(raw_request(READ, 0, 512, magic=REQUEST ^ 1)),
    "a reply for a request": closes(raw_request(READ, 0, 512, magic=SIMPLE)),
    "half a request": leaves(raw_request(WRITE, 0, 4096, b"x" * 100)),
    "an unknown command": fails([EINVAL, ENOTSUP], 99),
    "unknown command flags": fails([EINVAL], READ, 0, 512, flags=0x4000),
    "a read that begins behind the end": fails([EINVAL], READ, length=512, beyond=0),
    "a read across the end": fails([EINVAL], READ, length=1024, beyond=-512),
    "a read at the end of all numbers": fails([EINVAL], READ, (1 << 64) - 512, 4096),
    "a read of 4 GiB": fails([EINVAL, EOVERFLOW], READ, 0, HUGE),
    "block status that was not negotiated": fails([EINVAL], STATUS, 0, 4096),
    "a disconnect with more behind it": closes(raw_request(DISC)),
    "a client that never reads": never_reads,
}
WRITABLE = {
    "a write behind the end": fails([EINVAL, ENOSPC], WRITE, length=4096, data=b"x" * 4096, beyond=0),
    "a write across the end": fails([EINVAL, ENOSPC], WRITE, length=4096, data=b"x" * 4096, beyond=-512),
    "a trim across the end": fails([EINVAL, ENOSPC], TRIM, length=4096, beyond=-512),
    "zeroes at the end of all numbers": fails([EINVAL, ENOSPC], ZEROES, (1 << 64) - 512, 4096),
    "a write of 4 GiB": closes(raw_request(WRITE, 0, HUGE, b"x" * 65536)),
    "STARTTLS with data": answered(STARTTLS, b"x", INVALID, POLICY, UNSUP),
}
READ_ONLY = {
    "a write": fails([EPERM], WRITE, 0, 4096, b"x" * 4096),
    "a trim": fails([EPERM], TRIM, 0, 4096),
    "zeroes": fails([EPERM], ZEROES, 0, 4096),
}


def refused_before_tls(number, data):
    def case():
        client = Client()
        client.option(number, data)
        assert client.option_reply(number) == TLS_REQD
        client.option(ABORT)
        client.must_close()
    return case


def no_tls_client():
    """A client that asks for TLS and then speaks something else."""
    client = Client()
    client.option(STARTTLS)
    assert client.option_reply(STARTTLS) == ACK
    client.put(b"this is no TLS record, " * 100)
    client.must_close()


TLS = {
    "LIST before TLS": refused_before_tls(LIST, b""),
    "INFO before TLS": refused_before_tls(INFO, name_and_requests(b"disk")),
    "GO before TLS": refused_before_tls(GO, name_and_requests(b"disk")),
    "EXPORT_NAME before TLS": closes(raw_option(EXPORT_NAME, b"disk")),
    "noise instead of TLS": no_tls_client,
}


def neighbour(stop, outcome, writes):
    """Works on the last 64 KiB of the export until told to stop."""
    try:
        client, rounds = Client().go(), 0
        at = client.size - 65536
        while not stop.is_set():
            data = os.urandom(65536) if writes else None
            if writes:
                client.request(WRITE, at, 65536, data)
                assert client.reply() == 0, "a good write"
            client.request(READ, at, 65536)
            assert client.reply(65536) == 0, "a good read"
            assert not writes or client.data == data, "other data was read"
            rounds += 1
        outcome.append(rounds)
    except BaseException as error:
        outcome.append(error)


def main():
    mode = sys.argv[4] if len(sys.argv) > 4 else ""
    cases = TLS if mode == "tls-required" else COMMON | (READ_ONLY if mode == "read-only" else WRITABLE)
    stop, outcome = threading.Event(), []
    good = threading.Thread(target=neighbour, args=(stop, outcome, mode == ""))
    if mode != "tls-required":
        good.start()
    failed = 0
    for name, case in cases.items():
        try:
            case()
            print(f"ok   {name}")
        except (AssertionError, Closed, OSError) as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__} {error}")
    stop.set()
    if mode != "tls-required":
        good.join()
        if not isinstance(outcome[0], int) or outcome[0] < 10:
            failed += 1
            print(f"FAIL the other client: {outcome[0]!r}")
        else:
            print(f"ok   the other client worked all the while: {outcome[0]} rounds")
    sys.exit(f"{failed} cases went wrong" if failed else 0)


main()
