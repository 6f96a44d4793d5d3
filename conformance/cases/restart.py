"""The duration of a restart after kill -9, with a log that is as full as hosts can make it.

Hosts abort a session after 15 seconds. The case fills the log in memory, where a commit is fast, with a volume whose
storage takes an hour per I/O, until the log admits no more; then it copies the log to a disk and drops it from the page
cache. It measures the time from the start of the process to the ready line, and to the answer of a read of data that is
only in the log.
"""

import time

from ..harness import fio
from ..harness.case import Failed, Missed, case, output, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from .interop import qemu_io

SECONDS_MAX = 15
# Maximum seconds of filling; the log is full when it has not grown by 1/2000 for SAME seconds.
FILL, SAME = 600, 8
MIB = 1 << 20


class Far:
    """A gateway with a volume whose storage takes `service` per I/O."""

    def __init__(self, run, log, mib, service):
        self.socket = run.folder / "nbd.socket"
        config = Config().nbd("disk", unix=self.socket).add("backend", name="far", model="fixed", service=service)
        config.volume(file=run.folder / "disk.img", size="16GiB", backend="far", log=log, log_size=f"{mib}MiB")
        self.gateway = Gateway(run, config.target())

    def io(self, *commands, options=("-f", "raw")):
        output(*qemu_io(self.uri, *commands, options=options))

    @property
    def uri(self):
        return f"nbd+unix:///disk?socket={self.socket}"


def restart(run, mib, block, depth):
    memory = run.memory() / "log"
    # Write-back of a new log, and the flush of its first host, wait for a flush of the storage.
    first = Far(run, memory, mib, "1us")
    first.gateway.start(patience=120)
    first.io("write 0 4k")
    first.gateway.stop()
    far = Far(run, memory, mib, "1h")
    far.gateway.start()
    # The case reads this from the log later.
    far.io("write -P 7 0 4k")
    filler = run.spawn(*fio.words("fill", far.uri, rw="randwrite", bs=block, iodepth=depth, offset="1m", size="15g", time_based=True,
                                  runtime=FILL, randrepeat=0), stdout=open(run.folder / "fio", "wb"))
    before = same = 0
    begin = time.monotonic()
    # From 75 % on writes are paced to the rate of the storage, which is zero.
    while same < SAME and time.monotonic() - begin < FILL:
        time.sleep(1)
        now = far.gateway.volume_log()["dirty_bytes"]
        same = same + 1 if now < before + mib * MIB // 2000 else 0
        before = now
    log = far.gateway.volume_log()
    filler.kill()
    filler.wait()
    far.gateway.kill()
    if log["fill"] < 0.5:
        raise Failed(f"the log was at most {log['fill']:.0%} full: the case is inconclusive")
    disk = run.folder / "disk.log"
    output("cp", "--sparse=never", memory, disk, seconds=300)
    memory.unlink()
    output("sync", disk, seconds=300)
    output("dd", f"if={disk}", "iflag=nocache", "count=0", "status=none")
    again = Far(run, disk, mib, "1h")
    begin = time.monotonic()
    ready = again.gateway.start(patience=120)
    again.io("read -P 7 0 4k", options=("-f", "raw", "-r"))
    answered = time.monotonic() - begin
    print(f"{block}, depth {depth}: a log of {mib} MiB, {log['fill']:.1%} full, {log['dirty_bytes'] / MIB:.0f} MiB dirty: ready in "
          f"{ready:.2f} s, a read answered in {answered:.2f} s, {again.gateway.resident() >> 10} MiB of memory")
    again.gateway.kill()
    if answered >= SECONDS_MAX:
        raise Missed(f"a read is answered {answered:.1f} s after the start, {SECONDS_MAX} s wanted")


# 4k at depth 1 makes one batch per write, the most work for recovery; 64k at depth 32 makes the fewest batches.
for size, outstanding in (("4k", 1), ("4k", 32), ("64k", 32)):
    case(f"restart.{size}_depth{outstanding}", f"a restart with a full log takes less than {SECONDS_MAX} s",
         nightly={"mib": 1024, "block": size, "depth": outstanding}, informational=True, tools=("fio", "qemu-io"), limit=1200)(restart)
