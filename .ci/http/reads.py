#!/usr/bin/env python3
"""Reads 4 KiB at scattered places of an NBD export, 50 times a second, until it is killed: SOCKET EXPORT."""

import socket
import struct
import sys
import time


def take(connection, count):
    taken = b""
    while len(taken) < count:
        part = connection.recv(count - len(taken))
        if not part:
            sys.exit("the gateway has closed the connection")
        taken += part
    return taken


path, export = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
    connection.connect(path)
    take(connection, 18)
    connection.sendall(struct.pack(">I", 3))
    # NBD_OPT_EXPORT_NAME: the gateway answers with the size and the flags, without zeroes behind them.
    name = export.encode()
    connection.sendall(b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
    size, _ = struct.unpack(">QH", take(connection, 10))
    blocks = size // 4096
    cookie = 0
    while True:
        cookie += 1
        offset = cookie * 7919 % blocks * 4096
        connection.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, cookie, offset, 4096))
        magic, error, echoed = struct.unpack(">IIQ", take(connection, 16))
        if (magic, error, echoed) != (0x67446698, 0, cookie):
            sys.exit(f"a read has failed with error {error}")
        take(connection, 4096)
        time.sleep(0.02)
