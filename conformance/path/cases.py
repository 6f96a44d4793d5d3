#!/usr/bin/env python3
"""What happens to paths under load, and what the clients in front may notice of it: see ../path.sh.

Every case writes, reads and compares all the while, and ends with the target's own file compared with what
was written. Prints figures and one line of verdict a case. Status 0: as it must be; 1: something was
lost, changed or refused, or stood still for too long; 4: a time or a rate of `slow` or `both` is not what is wanted.
"""

import argparse
import asyncio
import json
import os
import random
import re
import socket
import sys
import tempfile
import time

from nbd import BLOCK, Broken, Client, Verifier

# A path that is lost may hold up nobody for this long, in seconds.
STALL_MAX = 1.0
# A path that works again is used again within this time, and so are all, in seconds.
RETURN_MAX = 10.0
# Requests begin to end this long after the first path is back, in seconds: while none works each is tried
# every second.
RESUME_MAX = 2.0
# `both`: so long is the faster path frozen, in seconds; nobody may wait for its end.
HELD = 3
# `slow`: bytes per second and seconds of delay, each way, of a path that is well; it becomes SLOWER
# times slower in both. What is left on it after LEAVE_MAX may be LEFT of its steady share.
RATE, DELAY, SLOWER, LEAVE_MAX, LEFT = 20e6, 0.0005, 20, 1.0, 0.1
# A return has a spike if a tenth of a second has more bytes than SPIKE times the steady share, or a
# request takes longer than LATE times the p99 before.
SPIKE, LATE = 1.5, 2.0
FLAPS, SEED = 100, 5
MIB = 1 << 20
# Columns of the proxy's time line: what came from the gateway and from the target.
UP, DOWN = 1, 3
# The parts of the disk: one verifier each, qemu-io and fio.
SINGLE, MANY, QEMU, FIO = 0, 8 * MIB, 64 * MIB, 128 * MIB


class Proxy:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile()

    def __call__(self, *order):
        self.socket.sendall((" ".join(map(str, order)) + "\n").encode())
        return json.loads(self.answers.readline())

    def bytes_of(self, path, since, until, columns=(UP, DOWN)):
        """What gateway and target sent there in each tenth of a second of that time."""
        rows = {row[0]: row for row in self("timeline")[path]}
        return [sum(rows[tenth][column] for column in columns) if tenth in rows else 0
                for tenth in range(int(since * 10) + 1, int(until * 10))]


class Load:
    """Everything that works on the volume during a case."""

    def __init__(self, options):
        self.options, self.until = options, asyncio.Event()
        self.host, port = options.nbd.rsplit(":", 1)
        self.port, self.verifiers, self.tasks = int(port), [], []

    async def verifier(self, first, bytes_, depth, seed, pause=0.0):
        client = await Client.connect(self.host, self.port, "disk")
        one = Verifier(client, first // BLOCK, bytes_ // BLOCK, depth, seed, pause)
        self.verifiers.append(one)
        self.start(one.run(self.until))
        return one

    def start(self, work):
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def check(self):
        for task in self.tasks:
            if task.done() and task.exception():
                raise task.exception()

    async def sleep(self, seconds):
        """Ends at once when something fails."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            await asyncio.sleep(min(left, 0.1))

    async def finish(self, seconds=60):
        self.until.set()
        _, late = await asyncio.wait(self.tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.check()
        if late:
            raise Broken(f"{len(late)} clients had no answer {seconds} s after the last fault")
        # What a path still had to deliver has come by now, or the target has refused it.
        await asyncio.sleep(1)
        for verifier in self.verifiers:
            verifier.compare_file(self.options.file)
            verifier.client.close()
        return sum(len(verifier.done) for verifier in self.verifiers)

    def longest(self):
        return max(verifier.longest() for verifier in self.verifiers)

    async def fio(self, seconds):
        """Verified writes for so long, then all is read back; the longest time of a request in seconds."""
        rate = 400
        folder = tempfile.TemporaryDirectory()
        process = await asyncio.create_subprocess_exec(
            "fio", "--name=v", "--ioengine=nbd", f"--uri=nbd://{self.options.nbd}/disk", "--rw=randwrite", "--bs=16k",
            f"--offset={FIO}", f"--size={min(rate * seconds * 16 << 10, 127 * MIB)}", f"--rate_iops={rate}", "--iodepth=8",
            "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--thread", "--output-format=json", "--output=out",
            "--write_lat_log=v", "--log_avg_msec=0", cwd=folder.name,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        text = open(os.path.join(folder.name, "out")).read()
        job = json.loads(text[text.find("{"):])["jobs"][0] if "{" in text else {"error": "no result"}
        if process.returncode or job["error"]:
            raise Broken(f"fio: error {job['error']}: {said.decode()[-500:]}{text[:300]}")
        return max(job[kind]["clat_ns"]["max"] for kind in ("read", "write")) / 1e9

    async def qemu_io(self, seconds):
        """Writes, reads back and compares, in several sizes."""
        commands, sizes = [], ["4k", "64k", "256k"]
        for number in range(int(seconds * 15)):
            extent = f"-P {number % 255 + 1} {QEMU + number % 200 * 256 * 1024} {sizes[number % 3]}"
            commands += ["-c", f"aio_write {extent}", "-c", "aio_flush", "-c", f"read {extent}", "-c", "sleep 50"]
        process = await asyncio.create_subprocess_exec(
            "qemu-io", "-f", "raw", "-t", "none", *commands, f"nbd://{self.options.nbd}/disk",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        text = said.decode()
        wrong = re.findall(r".*(?:failed|error|rror:).*", text)
        if process.returncode or wrong or text.count("read ") < seconds * 15:
            raise Broken(f"qemu-io: status {process.returncode}: {wrong[:3] or text[-300:]}")

    async def in_use(self, proxy, path):
        """Waits until the path carries requests again; how long that took."""
        start = time.monotonic()
        while sum(proxy.bytes_of(path, time.monotonic() - 0.5, time.monotonic(), (UP,))) < 20_000:
            if time.monotonic() - start > RETURN_MAX:
                raise Broken(f"path {path} is not used {RETURN_MAX:.0f} s after it came back")
            await self.sleep(0.1)
        return time.monotonic() - start


async def one_path(options, proxy, *faults):
    """One path after the other is lost, each in its way, and comes back."""
    load = Load(options)
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 16, 2, 0.01)
    fio, qemu = load.start(load.fio(16)), load.start(load.qemu_io(14))
    returned = []
    for path, fault in enumerate(faults):
        await load.sleep(2.5)
        proxy(fault, path)
        await load.sleep(3)
        proxy("up", path)
        returned.append(await load.in_use(proxy, path))
    await qemu
    longest_fio = await fio
    total = await load.finish()
    print(f"{total} verified requests beside fio and qemu-io, no error; used again after "
          f"{' and '.join(f'{one:.1f} s' for one in returned)}")
    print(f"longest request: {single.longest() * 1000:.0f} ms with one outstanding, {load.longest() * 1000:.0f} ms with "
          f"sixteen, {longest_fio * 1000:.0f} ms in fio; below {STALL_MAX * 1000:.0f} ms wanted")
    return max(load.longest(), longest_fio) < STALL_MAX


async def plain(options, proxy):
    """Both paths are lost in turn, where nobody else's clients are, and no time says anything."""
    load = Load(options)
    await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 8, 2, 0.01)
    for path, fault in enumerate(("kill", "mute")):
        await load.sleep(2)
        proxy(fault, path)
        await load.sleep(3)
        proxy("up", path)
        await load.in_use(proxy, path)
    total = await load.finish()
    print(f"{total} verified requests, no error; longest {load.longest():.1f} s")
    return True


async def slow(options, proxy):
    """One path becomes slower by far, and well again."""
    for path in (0, 1):
        proxy("line", path, RATE, DELAY)
    load = Load(options)
    # Requests of all sizes from 4 to 256 KiB come in clumps; here the clumps shall be the gateway's.
    steady = await load.verifier(MANY, 32 * MIB, 16, 1, 0.018)
    steady.extent = lambda: (steady.random.randrange(steady.blocks // 4) * 4, 4)
    await load.sleep(2)
    begin = time.monotonic()
    await load.sleep(5)
    ill = proxy("line", 0, RATE / SLOWER, DELAY * SLOWER)
    await load.sleep(5)
    said = (await ask(options, "path", "list"))["paths"][0]
    judged = time.monotonic() - said["since_ns"] / 1e9 - ill
    print(f"weir path list: path 0 is {said['state']} ({said['why']}), {judged:.2f} s after it became slow")
    well = proxy("line", 0, RATE, DELAY)
    await load.sleep(12)
    end = time.monotonic()
    await load.finish()
    return judge_slow(proxy, steady, begin, ill, well, end) or None


def judge_slow(proxy, load, begin, ill, well, end):
    share = proxy.bytes_of(0, begin, ill)
    mean = sum(share) / len(share)
    # What the gateway sends that way, before the proxy holds it up.
    sent = proxy.bytes_of(0, begin, ill, (UP,))
    during = proxy.bytes_of(0, ill, well, (UP,))
    allowed = LEFT * sum(sent) / len(sent)
    # The first whole tenth begins up to a tenth after the fault.
    left = max((at + 2 for at, count in enumerate(during) if count > allowed), default=1) / 10
    rest = sum(during[int(LEAVE_MAX * 10):]) / max(1, len(during) - LEAVE_MAX * 10)
    # Nothing is held up any more when what the proxy had kept has gone.
    back = proxy.bytes_of(0, well + 0.2, end)
    latency = sorted(done - sent for sent, done in load.done if begin < done < ill)
    p99 = latency[len(latency) * 99 // 100]
    returned = next((at for at in range(len(back)) if sum(back[at:at + 10]) >= mean * 5), len(back)) / 10
    worst_ill = load.longest(ill)
    worst = max(done - sent for sent, done in load.done if sent > well + 0.2)
    verdict = (left <= LEAVE_MAX, returned <= RETURN_MAX, max(back) <= SPIKE * mean, worst <= LATE * p99)
    print(f"{mean * 10 / 1e6:.2f} MB/s on the path, no tenth of a second above {max(share) / mean:.2f} of "
          f"that; traffic left after {left:.1f} s, then {rest * 10 / 1e3:.1f} kB/s were sent there; "
          f"longest request then {worst_ill * 1000:.0f} ms")
    print(f"used again after {returned:.1f} s, no tenth of a second above {max(back) / mean:.2f} of the share; "
          f"p99 {p99 * 1000:.1f} ms before, longest after {worst * 1000:.1f} ms: "
          f"{'no spike' if all(verdict) else 'left, returned, bytes, latency: ' + str(verdict)}")
    return all(verdict)


async def both(options, proxy):
    """One path is so slow that it is not used; then the other is frozen."""
    for path in (0, 1):
        proxy("line", path, RATE, DELAY)
    load = Load(options)
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    many = await load.verifier(MANY, 32 * MIB, 16, 2, 0.018)
    for one in (single, many):
        one.extent = lambda one=one: (one.random.randrange(one.blocks // 4) * 4, 4)
    await load.sleep(2)
    proxy("line", 0, RATE / SLOWER, DELAY * SLOWER)
    start = time.monotonic()
    while (state := (await ask(options, "path", "list"))["paths"][0]["state"]) != "ejected":
        if time.monotonic() - start > 5:
            raise Broken(f"a path that is {SLOWER} times slower is {state}")
        await load.sleep(0.05)
    frozen = proxy("freeze", 1)
    await load.sleep(HELD)
    paths = [(path["state"], path["why"]) for path in (await ask(options, "path", "list"))["paths"]]
    proxy("up", 1)
    proxy("line", 0, RATE, DELAY)
    await load.in_use(proxy, 1)
    total = await load.finish()
    # What waits for the path that is left takes its turn there, as slow as that is.
    most = STALL_MAX + 16 * 4 * BLOCK / (RATE / SLOWER) + 4 * DELAY * SLOWER
    print(f"{total} verified requests, no error; the slow path is {' '.join(paths[0])}, the frozen one {' '.join(paths[1])}; "
          f"longest request {single.longest(frozen) * 1000:.0f} ms with one outstanding, {many.longest(frozen) * 1000:.0f} ms "
          f"with sixteen; below {most * 1000:.0f} ms wanted")
    if paths != [("active", "last left"), ("failed", "no answer")] or load.longest() >= HELD:
        return False
    return load.longest() < most or None


async def gone(options, proxy):
    """All paths are lost for a while."""
    load = Load(options)
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    await load.verifier(MANY, 2 * MIB, 16, 2)
    fio = load.start(load.fio(5))
    await load.sleep(2)
    for path in (0, 1):
        proxy("kill", path)
    await load.sleep(1)
    before = [len(one.done) for one in load.verifiers]
    await load.sleep(options.hold - 1.5)
    if before != [len(one.done) for one in load.verifiers]:
        raise Broken("a request ended although there is no path")
    await all_wait(options, sum(one.outstanding for one in load.verifiers))
    await load.sleep(0.5)
    proxy("up", 1)
    back = time.monotonic()
    while single.longest(back) == 0.0:
        if time.monotonic() - back > RETURN_MAX:
            raise Broken(f"nothing ends {RETURN_MAX:.0f} s after a path is back")
        await load.sleep(0.01)
    resumed = time.monotonic() - back
    proxy("up", 0)
    await load.in_use(proxy, 0)
    await fio
    total = await load.finish()
    print(f"after {options.hold:.0f} s without a path the first request ends {resumed:.2f} s after one is back, below "
          f"{RESUME_MAX:.0f} s wanted; {total} verified requests, no error")
    return resumed < RESUME_MAX


async def ask(options, *question):
    """The answer of the gateway's control socket."""
    process = await asyncio.create_subprocess_exec(
        options.weir, *question, "--json", "--socket", options.control,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, complaint = await asyncio.wait_for(process.communicate(), 10)
    if process.returncode:
        raise Broken(f"weir {' '.join(question)}: {complaint.decode()}")
    return json.loads(said)


async def all_wait(options, waiting):
    """The operator is told that no path works, and of the requests that wait."""
    paths = (await ask(options, "path", "list"))["paths"]
    paths = [path for path in paths if path["backend"] == "array"]
    if [path["state"] for path in paths] != ["failed", "failed"]:
        raise Broken(f"weir path list says of two dead paths: {paths}")
    status = (await ask(options, "status"))["status"]
    stages = {stage["stage"]: stage for stage in status["stages"] if stage["count"]}
    oldest = max(stage["oldest_ns"] for stage in stages.values()) / 1e9
    named = [one for one in status["overdue"] if one["volume"] == "disk"]
    if sum(stage["count"] for stage in stages.values()) < waiting or oldest < options.hold - 2 or not named:
        raise Broken(f"weir status does not name {waiting} requests that wait: {stages}, {status['overdue']}")
    counts = ", ".join(f"{stage['count']} in {name}" for name, stage in stages.items())
    print(f"{waiting} verified requests wait; weir path list: {' and '.join(path['why'] for path in paths)} for "
          f"{min(path['since_ns'] for path in paths) / 1e9:.1f} s; weir status: "
          f"{counts}, the oldest for {oldest:.1f} s, "
          f"{len(named) + status['overdue_left_out']} overdue by name, the first a {named[0]['op']} of "
          f"{named[0]['length']} bytes at {named[0]['offset']}")


async def flaps(options, proxy):
    chance = random.Random(SEED)
    load = Load(options)
    single = await load.verifier(SINGLE, 2 * MIB, 1, 1)
    for number in range(4):
        await load.verifier(MANY + 8 * MIB * number, 2 * MIB, 8, number + 2, 0.005)
    # Deep in one megabyte: most requests wait for one before.
    await load.verifier(QEMU, MIB, 32, 6)
    kinds = {"kill": 0, "freeze": 0, "mute": 0, "slow": 0}
    for _ in range(FLAPS):
        kind = chance.choice(list(kinds))
        kinds[kind] += 1
        for path in chance.choice([[0], [0], [1], [1], [0, 1]]):
            proxy(*(("line", path, 200e3, 0.05) if kind == "slow" else (kind, path)))
        await load.sleep(chance.uniform(0.05, 1.2))
        for path in (0, 1):
            proxy("line", path, 0, 0)
            proxy("up", path)
        await load.sleep(chance.uniform(0.05, 0.6))
    # Who has come and gone so often may have to stay out for a minute, but not both.
    await load.sleep(2)
    paths = [path["state"] for path in (await ask(options, "path", "list", "array"))["paths"]]
    if "active" not in paths:
        raise Broken(f"no path is in use after the flaps: {paths}")
    total = await load.finish()
    counts = proxy("counts")
    print(f"{FLAPS} flaps ({', '.join(f'{count} {kind}' for kind, count in kinds.items())}), "
          f"{counts[0]['connections']} and {counts[1]['connections']} connections: {total} verified requests, none lost, "
          f"doubled or out of order; the paths are {' and '.join(paths)}; longest request {load.longest():.1f} s, "
          f"{single.longest():.1f} s with one outstanding")
    return True


CASES = {
    "killed": lambda options, proxy: one_path(options, proxy, "kill", "kill"),
    "frozen": lambda options, proxy: one_path(options, proxy, "freeze", "mute"),
    "plain": plain, "slow": slow, "both": both, "gone": gone, "flaps": flaps,
}


def main():
    parser = argparse.ArgumentParser()
    for name in ("proxy", "nbd", "file", "weir", "control"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--hold", type=float, default=60.0)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    start = time.monotonic()
    try:
        good = asyncio.run(CASES[options.case](options, Proxy(options.proxy)))
    except Broken as broken:
        print(f"FAIL {options.case}: {broken}", flush=True)
        # Clients that still wait would keep this process.
        os._exit(1)
    word = {True: "ok  ", False: "FAIL", None: "MISS"}[good]
    print(f"{word} {options.case} in {time.monotonic() - start:.0f} s", flush=True)
    sys.exit({True: 0, False: 1, None: 4}[good])


if __name__ == "__main__":
    main()
