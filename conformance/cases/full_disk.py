"""A volume whose storage runs full: hosts get the right error, and other volumes continue to work."""

import re
import threading

from ..harness.case import Failed, attempt, case, ok, output
from ..harness.config import Config
from ..harness.gateway import Gateway
from .interop import qemu_io

OTHER = "iqn.2026-11.io.weir:other"
MIB = 1 << 20


def io(url, *commands):
    """What qemu-io prints, whether it succeeds or not. QEMU asks thin disks for GET LBA STATUS and reports a refusal."""
    _, said = attempt(*qemu_io(url, *commands), seconds=60)
    return "\n".join(line for line in said.splitlines() if "GET_LBA_STATUS" not in line)


def wrong(said):
    return re.search("(?i)failed|error|failure", said)


def well(what, said):
    if wrong(said) or "ops;" not in said:
        raise Failed(f"{what}: {said}")


class Neighbour:
    """A session with another volume, which writes and reads all the while."""

    def __init__(self, url):
        self.url, self.stop, self.complaint, self.rounds = url, threading.Event(), "", 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.stop.is_set() and not self.complaint:
            extent = f"-P {self.rounds % 250 + 1} {self.rounds % 60}M 1M"
            said = io(self.url, f"write {extent}", f"read {extent}")
            self.complaint = said if wrong(said) else ""
            self.rounds += 1

    def finish(self):
        self.stop.set()
        self.thread.join()
        if self.complaint:
            raise Failed(f"the other volume was disturbed: {self.complaint}")
        ok(f"the other volume was served all the while, {self.rounds} times")


def full(run, mode):
    mount = run.fresh("small")
    output("mount", "-t", "tmpfs", "-o", "size=48M", "weir-full-disk", mount)
    run.defer(lambda: attempt("umount", "--lazy", mount))
    config = Config().volume("disk", file=mount / "disk.img", size="256MiB", io=mode).target("disk")
    config.volume("other", file=run.folder / "other.img", size="64MiB").target("other", name=OTHER)
    gateway = Gateway(run, config)
    gateway.start()
    url, other = gateway.url(), gateway.url(OTHER)
    neighbour, written, refused = Neighbour(other), 0, ""
    # Each MiB has another pattern, until a write finds no space.
    while written < 200 and not refused:
        said = io(url, f"write -P {written + 1} {written}M 1M")
        if wrong(said):
            refused = said
        else:
            written += 1
    if not refused or written < 40:
        raise Failed(f"{written} MiB of about 48 were written: {refused}")
    # Key 7 and code 27/07, as libiscsi and QEMU print them.
    if not re.search(r"DATA PROTECTION\(7\).*2707", refused) or "No space left on device" not in refused:
        raise Failed(f"the host got another error: {refused}")
    ok(f"full after {written} MiB: {refused.splitlines()[0]}")
    if not gateway.alive():
        raise Failed("the gateway left")
    if not re.search("request failed volume=disk.*the storage behind the volume is full", gateway.said()):
        raise Failed("the log does not say that the storage is full")
    ok("the log names the volume and the reason")
    well("acknowledged data", io(url, *(f"read -P {index + 1} {index}M 1M" for index in range(written))))
    ok(f"all {written} MiB that were acknowledged are intact")
    well("giving back", io(url, "discard 0 16M"))
    well("zeroes", io(url, "read -P 0 0 16M"))
    well("writing again", io(url, f"write -P 201 {written}M 8M", "flush", f"read -P 201 {written}M 8M", "read -P 17 16M 1M"))
    ok("after unmapping 16 MiB, 8 MiB more can be written")
    neighbour.finish()
    well("the other volume", io(other, "write -P 77 0 4M", "read -P 77 0 4M"))
    gateway.stop()


for each in ("auto", "buffered"):
    case(f"full_disk.{each}", f"full storage gives the right error, loses no data and does not affect other volumes ({each} I/O)",
         gate={"mode": each}, root=True, tools=("qemu-io", "mount", "umount"))(full)
