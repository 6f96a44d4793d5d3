"""A record of a write-back log rots before it is written back: write-back is blocked there, an operator gives the record
up, reads of its range fail until a host has overwritten it, and nothing else is lost or stops."""

import os

from ..harness.case import Failed, case, ok, refuse, until
from ..harness.iscsi import CHECK_CONDITION, GOOD, Session, serve
from ..harness.write_back import WriteBack

BLOCKS = 8
# First blocks of the writes; they are neighbours, and the one in the middle rots.
BEFORE, ROTTEN, BEHIND = 64, 72, 80


def pattern(number):
    return bytes([number]) * 8 + os.urandom(BLOCKS * 512 - 8)


class Host:
    """One command after another."""

    def __init__(self, gateway):
        self.session = Session(gateway.url(), "iqn.2026-11.org.example:host")

    def ask(self, begin, *words):
        answers = []
        begin(*words, lambda status, data: answers.append((status, data and data.raw)))
        if not serve([self.session], lambda: answers, 30):
            raise Failed("a command has no answer")
        return answers[0]

    def write(self, lba, data):
        if self.ask(self.session.write, lba, data)[0] != GOOD:
            raise Failed(f"a write at block {lba} has failed")

    def reads(self, lba, data):
        status, found = self.ask(self.session.read, lba, len(data) // 512)
        if status != GOOD or found != data:
            raise Failed(f"a read at block {lba} ends with status {status:#x}, or has other data")

    def fails(self, lba, blocks):
        status, _ = self.ask(self.session.read, lba, blocks)
        if status != CHECK_CONDITION:
            raise Failed(f"a read of lost data, {blocks} blocks at {lba}, ends with status {status:#x}")


def rot(log, data):
    """Flips a bit of this data in the log."""
    with open(log, "r+b") as file:
        at = file.read().find(data)
        if at < 0:
            raise Failed("the log does not have the data of the write")
        file.seek(at + 1000)
        byte = file.read(1)[0]
        file.seek(at + 1000)
        file.write(bytes([byte ^ 0x10]))
        file.flush()
        os.fsync(file.fileno())


def status(gateway):
    volume = gateway.volume()
    return volume["log"]["storage"], [(one["offset"] // 512, one["length"] // 512) for one in volume["quarantine"]]


@case("quarantine.record", "a rotten record of a log is given up alone, and its range heals when it is overwritten",
      area="write-back", tools=("tgtd", "tgtadm"))
def record(run):
    rig = WriteBack(run, 16, log_size="32MiB", log_io="buffered")
    gateway = rig.gateway
    gateway.start()
    refuse("is not blocked by data that its log cannot give", gateway.weir, "volume", "quarantine", "disk", "--socket",
           gateway.control, status=1)
    rig.proxy("kill", 0)

    def crash():
        gateway.kill()
        gateway.start()

    host = Host(gateway)
    data = {lba: pattern(number) for number, lba in enumerate((BEFORE, ROTTEN, BEHIND), 1)}
    host.ask(host.session.flush)
    for lba, written in data.items():
        host.write(lba, written)
    rot(rig.log, data[ROTTEN])
    rig.proxy("up", 0)
    until(lambda: status(gateway)[0] == "blocked", "write-back is blocked", 60)
    print(gateway.cli("volume", "status"))
    if "blocked by data that the log cannot give" not in gateway.said():
        raise Failed("the event log does not say what is blocked")

    print(gateway.cli("volume", "quarantine", "disk"))
    until(lambda: status(gateway) == ("up", [(ROTTEN, BLOCKS)]) and gateway.volume_log()["dirty_bytes"] == 0,
          "everything else is written back", 60)
    with open(rig.image, "rb") as file:
        image = file.read()
    for lba in (BEFORE, BEHIND):
        if image[lba * 512:(lba + BLOCKS) * 512] != data[lba]:
            raise Failed(f"the upstream lacks the write at block {lba}")
    ok("one record is in quarantine, and the upstream has everything else")

    for name, again in (("before", None), ("after a restart", gateway.restart), ("after a kill", crash)):
        if again:
            host.session.leave()
            again()
            host = Host(gateway)
        host.fails(ROTTEN, BLOCKS)
        host.fails(ROTTEN + BLOCKS - 1, 1)
        host.fails(BEFORE, 3 * BLOCKS)
        host.reads(BEFORE, data[BEFORE])
        host.reads(BEHIND, data[BEHIND])
        ok(f"reads of it fail, and no others: {name}")
    print(gateway.cli("volume", "status"))

    new = pattern(9)
    host.write(ROTTEN, new[:1024])
    host.reads(ROTTEN, new[:1024])
    host.fails(ROTTEN, 3)
    crash()
    host = Host(gateway)
    host.reads(ROTTEN, new[:1024])
    host.fails(ROTTEN + 1, 2)
    ok("what was overwritten and answered is there after a kill, and the rest is lost still")
    host.write(ROTTEN, new)
    crash()
    host = Host(gateway)
    host.reads(ROTTEN, new)
    if status(gateway)[1]:
        raise Failed(f"still in quarantine: {status(gateway)[1]}")
    gateway.drain()
    gateway.stop()
    with open(rig.image, "rb") as file:
        file.seek(ROTTEN * 512)
        if file.read(len(new)) != new:
            raise Failed("the upstream lacks the write that has overwritten the lost range")
    ok("once it is overwritten the range has healed")
