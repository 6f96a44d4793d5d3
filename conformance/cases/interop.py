"""libiscsi's tools and QEMU with the gateway: data, restarts and crashes."""

import re
import socket

from ..harness.case import TARGET, Failed, case, expect, ok, output, refuse, same_files, until
from ..harness.config import Config
from ..harness.gateway import Gateway

SIZE = 256 << 20
TOOLS = ("iscsi-ls", "iscsi-inq", "iscsi-readcapacity16", "qemu-io", "qemu-img")
# Writes of every kind, and reads that verify them. iSCSI and NBD clients run the same.
ROUND_TRIP = ["write -P 0x5a 0 64k", "read -P 0x5a 0 64k", "flush", "write -f -P 0xa5 128k 4k", "read -P 0xa5 128k 4k",
              "write -P 1 192k 128k", "write -z 192k 64k", "discard 256k 64k", "read -P 0 192k 128k",
              "aio_write -P 1 1M 1M", "aio_write -P 2 2M 1M", "aio_flush", "read -P 1 1M 1M", "read -P 2 2M 1M",
              "write -P 7 8M 4M", "read -P 7 8M 4M"]


def qemu_io(url, *commands, options=("-f", "raw", "-t", "none")):
    """The command line of a qemu-io that runs these commands on a URL."""
    return ["qemu-io", *options, *(word for command in commands for word in ("-c", command)), url]


def disk(run, io, **iscsi):
    config = Config(**iscsi).volume(file=run.folder / "disk.img", size="256MiB", io=io).target()
    return Gateway(run, config)


def data(run, io):
    gateway = disk(run, io)
    gateway.start()
    url, portal = gateway.url(), gateway.portals[0]
    expect(f"Target:{TARGET} Portal:{portal},1", "iscsi-ls", f"iscsi://{portal}")
    expect(r"Lun:0 +Type:DIRECT_ACCESS \(Size:25[56]M\)", "iscsi-ls", "-s", f"iscsi://{portal}")
    expect("Vendor:WEIR", "iscsi-inq", url)
    expect(f"Total size:{SIZE}", "iscsi-readcapacity16", url)
    expect("read 4194304/4194304", *qemu_io(url, *ROUND_TRIP))
    # The read of a wrong pattern must fail; otherwise the reads above prove nothing.
    refuse("verification failed", *qemu_io(url, "read -P 9 8M 64k"))
    source = run.noise("source.img", SIZE >> 20)
    output("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-t", "none", source, url)
    gateway.restart()
    expect("Images are identical", "qemu-img", "compare", "-f", "raw", "-F", "raw", source, gateway.url())
    gateway.stop()
    if not same_files(source, run.folder / "disk.img"):
        raise Failed("the volume's file differs from the copied data")
    ok("the volume's file has the copied data")


for mode in ("direct", "buffered"):
    case(f"interop.{mode}", f"libiscsi and QEMU read the data that they wrote, also after a restart, with {mode} I/O",
         gate={"io": mode}, tools=TOOLS)(data)


@case("interop.restart", "a restart and a crash cause no error and no data loss for a host that writes", gate={}, tools=TOOLS)
def restart(run):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gateway = disk(run, "auto", listen=[f"127.0.0.1:{port}"])
    gateway.start()
    blocks, commands = 2048, []
    # 32 times 4 MiB, with a different pattern in each 64 KiB, and pauses for the interruptions.
    for number in range(blocks):
        commands.append(f"aio_write -q -P {number % 250 + 1} {number * 64}k 64k")
        if number % 64 == 63:
            commands.append("sleep 50")
    commands.append("aio_flush")
    commands += [f"read -P {number % 250 + 1} {number * 64}k 64k" for number in range(blocks)]
    said = run.folder / "qemu-io"
    with open(said, "wb") as file:
        qemu = run.spawn(*qemu_io(gateway.url(), *commands, "flush"), stdout=file, stderr=file)
    image = run.folder / "disk.img"

    def written(mib):
        until(lambda: image.stat().st_blocks >= mib << 11, f"QEMU writes {mib} MiB", 60, 0.01)

    written(16)
    gateway.stop()
    gateway.start()
    written(64)
    gateway.kill()
    gateway.start()
    status, text = qemu.wait(120), said.read_text()
    wrong = re.findall("(?i)^.*(?:failed|error).*$", text, re.M)
    if status or wrong or text.count("read 65536/65536") != blocks:
        raise Failed(f"qemu-io: status {status}, {text.count('read 65536/65536')} of {blocks} reads: {wrong[:3]}")
    sessions = gateway.said().count("INFO session peer")
    if sessions < 3:
        raise Failed(f"three gateways should have had a session; the log has {sessions}")
    ok("QEMU reconnected both times, and reads all data that it wrote")
    gateway.stop()
