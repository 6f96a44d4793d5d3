"""Sends a gateway a fixed number of requests at depth 1, to count its instructions per request.

One request at a time meets the gateway idle, so every request takes the same way through it, and counts of two runs
differ by few instructions in a thousand.
"""

import asyncio
import json
import signal
import subprocess

from conformance.harness import iscsi, nbd

TARGET = "iqn.2026-11.org.example:cost"
BYTES = 4096
# The volume; requests go to its blocks in turn.
BLOCKS = 4096

CONFIGURATION = """\
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = {{ disk = "disk" }}
[[volume]]
name = "disk"
file = "{folder}/disk.img"
size = "{size}MiB"
io = "buffered"
[[target]]
name = "{target}"
luns = {{ 0 = "disk" }}
"""


def over_iscsi(ready, write, requests):
    """Sends requests over iSCSI; each must end with GOOD."""
    session = iscsi.Session(f"iscsi://{ready['portals'][0]}/{TARGET}/0", "iqn.2026-11.org.example:host")
    blocks, data = BYTES // iscsi.BLOCK, bytes(BYTES)
    ended = []
    for number in range(requests):
        lba = number % BLOCKS * blocks
        if write:
            session.write(lba, data, lambda status, _: ended.append(status))
        else:
            session.read(lba, blocks, lambda status, _: ended.append(status))
        if not iscsi.serve([session], lambda: len(ended) > number, seconds=60):  # noqa: B023
            raise RuntimeError("the session was lost")
    if any(ended):
        raise RuntimeError("a request ended with a status other than GOOD")
    session.leave()


def over_nbd(ready, write, requests):
    """Sends requests over NBD; an error raises."""

    async def send():
        address = next(uri for uri in ready["nbd"] if uri.startswith("nbd://")).split("/")[2]
        host, port = address.rsplit(":", 1)
        client = await nbd.Client.connect((host, int(port)), "disk")
        for number in range(requests):
            offset = number % BLOCKS * BYTES
            if write:
                await client.request(nbd.WRITE, offset, BYTES, bytes(BYTES))
            else:
                await client.request(nbd.READ, offset, BYTES)
        client.close()

    asyncio.run(send())


CLIENTS = {"iscsi": over_iscsi, "nbd": over_nbd}


def run(prefix, weir, folder, protocol, operation, requests):
    """Runs a gateway behind `prefix`, sends it this number of requests, and stops it gracefully."""
    file = folder / "weir.toml"
    file.write_text(CONFIGURATION.format(folder=folder, size=BLOCKS * BYTES >> 20, target=TARGET), encoding="utf-8")
    with (folder / "log").open("w+b") as log:
        process = subprocess.Popen(
            [*prefix, str(weir), "serve", str(file), "--json"], stdout=subprocess.PIPE, stderr=log, cwd=folder
        )
        try:
            ready = json.loads(process.stdout.readline() or "null")
            if ready:
                CLIENTS[protocol](ready, operation == "write", requests)
                process.send_signal(signal.SIGTERM)
            status = process.wait(60)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if status or not ready:
            log.seek(0)
            raise RuntimeError(f"the gateway left with status {status}: {log.read()[-1500:].decode(errors='replace')}")
