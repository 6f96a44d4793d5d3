"""The upstream alone is crash-consistent at any instant: if the gateway and its log are lost for ever, the file system
is still consistent.

The case modifies a file system on the gateway's volume and kills the gateway once; the file behind the volume is a disk
that records its writes. The case cuts the recording at random instants, each with some of the writes since the last
flush lost or torn, and replays the journal; fsck must find no error. It must detect cuts that lose flushed writes.
"""

import os
import random
import threading

from ..harness.case import TARGET, Failed, attempt, case, output, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.recorded import Disk, cut, entries
from ..harness.targets import free_ports

# MiB of a file system; 320 is the minimum of mkfs.xfs.
SIZES = {"ext4": 64, "xfs": 320}
# Sectors that the disk writes at once. XFS does not recover from a torn metadata block, on any disk: it compares the
# sequence number in the first sector of the block with the journal's, and then skips the replay. ext4 does not recover
# from a torn superblock, of two sectors: at a freeze and at the end it is written when the journal is empty, and the
# second sector has the checksum.
BLOCKS = {"ext4": 2, "xfs": 8}
SECONDS = 120


class Host:
    """A file system on the gateway's volume: QEMU's initiator, a file by FUSE, a loop device."""

    def __init__(self, run, portal):
        self.run, self.portal = run, portal
        self.place, self.mount = run.folder / "host.disk", run.fresh("mnt")
        self.process, self.loop = None, None

    def start(self, size):
        self.place.touch()
        self.process = self.run.spawn(
            "qemu-storage-daemon", "--blockdev", f"driver=iscsi,node-name=up,transport=tcp,portal={self.portal},"
            f"target={TARGET},lun=0,cache.direct=on", "--blockdev", "driver=raw,node-name=disk,file=up",
            "--export", f"type=fuse,id=export,node-name=disk,mountpoint={self.place},writable=on")
        self.run.defer(self.end)
        until(lambda: os.path.getsize(self.place) == size, "qemu-storage-daemon exports the volume", SECONDS)
        self.loop = output("losetup", "--find", "--show", self.place).strip()

    def end(self):
        """Undoes `start`; may be called again."""
        attempt("umount", self.mount)
        if self.loop:
            attempt("losetup", "--detach", self.loop)
        if self.process:
            self.process.terminate()
            self.process.wait(SECONDS)
        self.loop = self.process = None


def files(folder, seed, changes, halfway):
    """Creates, writes, renames, truncates, removes and syncs files. Calls `halfway()` once."""
    chance, names = random.Random(seed), []
    for number in range(changes):
        if number == changes // 2:
            halfway()
        what = chance.random()
        place = os.path.join(folder, f"d{chance.randrange(8)}")
        os.makedirs(place, exist_ok=True)
        if what < 0.55 or len(names) < 8:
            name = os.path.join(place, f"f{number}")
            with open(name, "wb") as file:
                file.write(chance.randbytes(chance.choice((100, 3000, 9000, 40000, 150000))))
                if chance.random() < 0.3:
                    file.flush()
                    os.fsync(file.fileno())
            names.append(name)
        elif what < 0.65:
            index = chance.randrange(len(names))
            to = os.path.join(place, f"r{number}")
            os.rename(names[index], to)
            names[index] = to
        elif what < 0.72:
            os.truncate(chance.choice(names), chance.randrange(50000))
        elif what < 0.75:
            # Writes all metadata to its own place. XFS leaves it in its journal for as long as 30 s otherwise, and a cut
            # that loses flushed writes then only loses the end of the journal, which is no fault.
            output("fsfreeze", "--freeze", folder)
            output("fsfreeze", "--unfreeze", folder)
        else:
            os.unlink(names.pop(chance.randrange(len(names))))
        while len(names) > 150:
            os.unlink(names.pop(0))


def check(kind, image, mount):
    """The error of a file system after a power cut and a replay of its journal; None if it is consistent."""
    try:
        if kind == "ext4":
            output("e2fsck", "-y", "-E", "journal_only", image, good=(0, 1))
            output("e2fsck", "-fn", image)
        else:
            output("mount", "-o", "loop,nouuid", image, mount)
            output("umount", mount)
            output("xfs_repair", "-n", image)
    except Failed as failed:
        return str(failed)
    return None


def written_back(gateway):
    until(lambda: gateway.volume_log()["dirty_bytes"] == 0, "the log becomes empty", SECONDS, 0.1)


def record(run, kind, gateway, disk, host, changes):
    """Modifies the volume and kills the gateway meanwhile; returns the entry behind which every cut must be legal."""
    disk.start()
    gateway.start()
    host.start(os.path.getsize(disk.base))
    output(f"mkfs.{kind}", "-q", host.loop)
    output("mount", host.loop, host.mount)
    output("sync", "-f", host.mount)
    written_back(gateway)
    first = len(entries(disk.record))

    def again():
        gateway.kill()
        gateway.start()

    killer = threading.Thread(target=again)
    files(host.mount, run.seed, changes, killer.start)
    killer.join()
    output("umount", host.mount)
    host.end()
    written_back(gateway)
    gateway.stop()
    disk.stop()
    return first


def power_cut(run, kind, cuts, unfair_cuts, changes):
    upstream = run.image("upstream.base", SIZES[kind])
    place, record_file = run.folder / "upstream", run.folder / "upstream.record"
    # The host reconnects to the same portal.
    portal = f"127.0.0.1:{free_ports(1)[0]}"
    config = Config(listen=[portal]).volume(file=place, io="buffered", log=run.folder / "disk.log", log_size="64MiB").target()
    gateway, host, disk = Gateway(run, config), Host(run, portal), Disk(run, upstream, record_file, place)
    first = record(run, kind, gateway, disk, host, changes)
    chance, recorded = random.Random(run.seed), entries(disk.record)
    flushes = sum(bool(one.flags & 1) for one in recorded[first:])
    print(f"{kind}: {changes} changes of files, with a kill of the gateway; the upstream had {len(recorded) - first} writes and flushes of "
          f"it, {flushes} of them flushes")
    image, fates, faults, unfair = run.folder / "cut", [0, 0, 0], [], 0
    for _ in range(cuts):
        point, seed = chance.randint(first, len(recorded)), chance.getrandbits(32)
        fates = [sum(pair) for pair in zip(fates, cut(disk.base, disk.record, image, point, seed, BLOCKS[kind]))]
        fault = check(kind, image, host.mount)
        if fault:
            faults.append(f"after {point} entries, seed {seed}: {fault}")
    for _ in range(unfair_cuts):
        cut(disk.base, disk.record, image, chance.randint(first, len(recorded)), chance.getrandbits(32), BLOCKS[kind], first)
        unfair += check(kind, image, host.mount) is not None
    print(f"{cuts} cuts, {len(faults)} of them illegal; {fates[1]} writes were lost in them and {fates[2]} torn. Of {unfair_cuts} cuts "
          f"that took flushed writes too, {unfair} were seen")
    if faults:
        raise Failed(f"{len(faults)} of {cuts} cuts: {faults[0]}")
    if not unfair:
        raise Failed("no cut of flushed writes was detected: the case cannot detect errors")


for each, tools in (("ext4", ("mkfs.ext4", "e2fsck")), ("xfs", ("mkfs.xfs", "xfs_repair"))):
    case(f"power_cut.{each}", f"the upstream alone is a consistent {each} after a power cut at any instant",
         gate={"kind": each, "cuts": 8, "unfair_cuts": 20, "changes": 150},
         small={"kind": each, "cuts": 40, "unfair_cuts": 40, "changes": 500},
         nightly={"kind": each, "cuts": 200, "unfair_cuts": 40, "changes": 3000}, root=True, area="write-back", limit=400,
         nightly_limit=1800, tools=("qemu-storage-daemon", "losetup", *tools))(power_cut)
