#!/usr/bin/env python3
"""Compares stores without a disk with a file in the page cache and with nbdkit, over NBD.

Each server serves 256 MiB on a Unix socket. fio reads or writes random blocks of 4 KiB at depth 1 or 32. The servers
take turns within a cell, and the medians of the turns are printed: requests a second, and requests for each second of
CPU time of the server (all of its threads, and kernel threads that work for it).

Needs fio with its nbd engine, and nbdkit.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

SIZE = "256MiB"

VOLUMES = {
    "weir memory": f'memory = "{SIZE}"',
    "weir null": f'null = "{SIZE}"',
    "weir file": f'file = "disk.img"\nsize = "{SIZE}"\nio = "buffered"',
}

CONFIGURATION = """\
[iscsi]
listen = []
[nbd]
unix = ["{socket}"]
exports = {{ "" = "disk" }}
[[volume]]
name = "disk"
{place}
"""


def weir(program, folder, place):
    """Starts Weir with a volume in this place, and waits until it serves."""
    folder.mkdir()
    config = folder / "weir.toml"
    config.write_text(CONFIGURATION.format(socket=folder / "nbd.sock", place=place), encoding="utf-8")
    log = (folder / "log").open("wb")
    command = [program, "serve", config, "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    if not process.stdout.readline():
        raise SystemExit(f"weir did not start: {(folder / 'log').read_text(encoding='utf-8')}")
    return process


def nbdkit(folder):
    """Starts nbdkit with its memory plugin, and waits for its socket."""
    folder.mkdir()
    socket = folder / "nbd.sock"
    command = ["nbdkit", "--foreground", "--unix", socket, "memory", SIZE.replace("iB", "")]
    process = subprocess.Popen(command)
    while not socket.exists():
        if process.poll() is not None:
            raise SystemExit("nbdkit did not start")
        time.sleep(0.01)
    return process


def cpu_seconds(process):
    """User and system time of a process and all of its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fio(folder, operation, depth, seconds):
    """Loads a server; the requests that ended."""
    command = [
        "fio",
        "--name=load",
        "--ioengine=nbd",
        f"--uri=nbd+unix:///?socket={folder / 'nbd.sock'}",
        f"--rw=rand{operation}",
        "--bs=4k",
        f"--iodepth={depth}",
        "--time_based",
        f"--runtime={seconds}",
        "--output-format=json",
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    return json.loads(output[output.index("{") :])["jobs"][0][operation]["total_ios"]


def fill(folder):
    """Writes all blocks once, so that memory is taken and the file is in the page cache."""
    command = ["nbdcopy", "--", "[", "nbdkit", "--exit-with-parent", "pattern", "256M", "]"]
    subprocess.run([*command, f"nbd+unix:///?socket={folder / 'nbd.sock'}"], check=True)


def main():
    """Starts all servers, loads them in turns, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", type=Path, default=Path("target/release/weir"))
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folders = {what: Path(name, what.replace(" ", "-")) for what in [*VOLUMES, "nbdkit memory"]}
        program = arguments.weir.resolve()
        servers = {what: weir(program, folders[what], place) for what, place in VOLUMES.items()}
        servers["nbdkit memory"] = nbdkit(folders["nbdkit memory"])
        try:
            for folder in folders.values():
                fill(folder)
            print(f"{'':14} {'':5} {'depth':>5} {'IOPS':>9} {'IOPS per CPU second':>20}")
            for operation in ["read", "write"]:
                for depth in [1, 32]:
                    cell = {what: [] for what in servers}
                    for turn in range(arguments.turns):
                        for what in sorted(servers, reverse=turn % 2 == 1):
                            before = cpu_seconds(servers[what])
                            requests = fio(folders[what], operation, depth, arguments.seconds)
                            used = max(cpu_seconds(servers[what]) - before, 0.01)
                            cell[what].append((requests / arguments.seconds, requests / used))
                    for what, turns in cell.items():
                        rate, each = (statistics.median(column) for column in zip(*turns, strict=True))
                        print(f"{what:14} {operation:5} {depth:5} {rate:9.0f} {each:20.0f}", flush=True)
        finally:
            for server in servers.values():
                server.terminate()
            for server in servers.values():
                server.wait()


if __name__ == "__main__":
    main()
