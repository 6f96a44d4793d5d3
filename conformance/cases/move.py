"""A volume moves between two gateways with write-back logs, in front of one unit of tgtd, under a writer that checks its data.

planned  the writer is sent to the other gateway at each move, without an error; a second command changes nothing
killed   one of the gateways, or the command between them, is killed at a random moment of a move
"""

import random
import statistics
import struct
import subprocess
import threading
import time

from ..harness import iscsi
from ..harness.case import TARGET, Failed, case, ok, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.targets import Tgtd, free_ports

MIB = 1 << 20
IMAGE = 16
BLOCK, BLOCKS = 4096, IMAGE * MIB // 4096
DEPTH = 8
# A host may wait this long in seconds for a gateway that was killed and is started again.
OUTAGE_MAX = 60


class Mover(Gateway):
    """One of the two gateways."""

    def __init__(self, run, name, target):
        [port] = free_ports(1)
        config = Config(listen=[f"127.0.0.1:{port}"])
        config.add("upstream", name="array", target=target.name, lun=target.lun, portals=target.portals[:1],
                   initiator_name=f"iqn.2026-11.org.example:{name}", reconnect_interval_max="200ms")
        config.volume(upstream="array", state="disk.state", log="disk.log", log_size="64MiB", identity="moving",
                      movable=True).target()
        super().__init__(run, config, name)

    def state(self):
        return self.ask("volume.move_look", volume="disk")["move"]["state"]

    def move(self, to):
        return self.cli("volume", "move", "disk", "--to", to.control)

    def command(self, to):
        """The command of a move, in the background."""
        return subprocess.Popen([self.weir, "volume", "move", "disk", "--to", to.control, "--socket", self.control],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Writer(threading.Thread):
    """A host that writes blocks and reads them back. It goes to its first portal, follows redirections, and sends again
    what was not answered, as a kernel does."""

    def __init__(self, portals, seed):
        super().__init__(daemon=True)
        self.urls = [f"iscsi://{portal}/{TARGET}/0" for portal in portals]
        self.chance, self.over, self.failure = random.Random(seed), threading.Event(), None
        self.content, self.number, self.repeat = {}, 0, []
        self.waits, self.errors, self.logins = [], [], 0
        self.session = None

    def run(self):
        try:
            while not self.over.is_set():
                self.round()
        except BaseException as error:  # The case reports it.
            self.failure = error
        finally:
            if self.session:
                self.session.close()

    def connect(self):
        end = time.monotonic() + OUTAGE_MAX
        while not (self.session and self.session.open):
            for url in self.urls:
                try:
                    self.session = iscsi.Session(url, "iqn.2026-11.org.example:host")
                    self.logins += 1
                    break
                except Failed as error:
                    why = error
            else:
                if time.monotonic() > end:
                    raise Failed(f"no gateway has let the host in for {OUTAGE_MAX} s: {why}")
                time.sleep(0.02)

    def served(self, begin):
        """Has one command or several done, over as many sessions as that takes."""
        left = dict(begin)
        while left:
            self.connect()
            waiting = dict(left)
            for place, start in waiting.items():
                def done(status, data, place=place):
                    if status == iscsi.GOOD:
                        left.pop(place)[1](data)
                    elif status not in iscsi.LOST and status not in (iscsi.BUSY, iscsi.TASK_SET_FULL, iscsi.CHECK_CONDITION):
                        raise Failed(f"status {status:#x} for block {place}")
                    elif status == iscsi.CHECK_CONDITION:
                        # The first command of a session is told that the unit was powered on; anything else comes again.
                        self.errors.append(place)
                start[0](done)
            iscsi.serve([self.session], lambda: not self.session.waiting)

    def round(self):
        begin = time.monotonic()
        blocks = self.chance.sample(range(BLOCKS), DEPTH)
        writes, new = {}, {}
        for block in blocks:
            self.number += 1
            new[block] = stamp(block, self.number)
            writes[block] = (lambda done, block=block: self.session.write(block * 8, new[block], done), lambda _: None)
        self.served(writes)
        self.content.update(new)
        if self.chance.random() < 0.1:
            self.served({"flush": (lambda done: self.session.flush(done), lambda _: None)})
        known = self.chance.sample(sorted(self.content), min(DEPTH, len(self.content)))
        self.served({block: (lambda done, block=block: self.session.read(block * 8, 8, done),
                             lambda data, block=block: self.check(block, data.raw)) for block in known})
        self.waits.append(time.monotonic() - begin)

    def check(self, block, data):
        if data != self.content[block]:
            have = struct.unpack_from("<QQ", data)
            raise Failed(f"block {block} has {have}, and {struct.unpack_from('<QQ', self.content[block])} was acknowledged")

    def finish(self):
        self.over.set()
        self.join(OUTAGE_MAX)
        if self.failure:
            raise self.failure
        if self.is_alive():
            raise Failed("the writer does not end")

    def longest(self):
        """The longest round since the last call, in seconds."""
        waits, self.waits = self.waits, []
        return max(waits, default=0.0)

    def alive(self):
        if self.failure:
            raise self.failure


def stamp(block, number):
    return struct.pack("<QQ", block, number) * (BLOCK // 16)


def gateways(run):
    image = run.image("home.img", IMAGE)
    target = Tgtd(run, image)
    a, b = Mover(run, "a", target), Mover(run, "b", target)
    a.start()
    b.start()
    if (a.state(), b.state()) != ("owner", "standby"):
        raise Failed(f"the first gateway is {a.state()}, the second {b.state()}")
    return image, a, b


def compare(image, writer):
    """Everything that was acknowledged must be at the home."""
    with open(image, "rb") as home:
        for block, content in writer.content.items():
            home.seek(block * BLOCK)
            if home.read(BLOCK) != content:
                raise Failed(f"block {block} is not at the home, though it was acknowledged")


def settled(gateways_, writer):
    """The owner, when there is one and the other waits."""
    def one():
        writer.alive()
        return sorted(gateway.state() for gateway in gateways_) == ["owner", "standby"]
    until(one, "one gateway is the owner, and the other one waits", OUTAGE_MAX)
    return sorted(gateways_, key=Mover.state)


@case("move.planned", "a volume moves between gateways under load: no error, nothing lost or old",
      gate={"moves": 6}, nightly={"moves": 100}, area="write-back", limit=120, nightly_limit=900, tools=("tgtd", "tgtadm"))
def planned(run, moves):
    image, a, b = gateways(run)
    writer = Writer([a.portals[0], b.portals[0]], run.seed)
    writer.start()
    until(lambda: writer.alive() or len(writer.waits) > 5, "the writer writes")
    stalls, here, there = [], a, b
    for _ in range(moves):
        writer.longest()
        here.move(there)
        rounds = len(writer.waits)
        until(lambda: writer.alive() or len(writer.waits) > rounds + 5, "the writer goes on", OUTAGE_MAX)
        stalls.append(writer.longest())
        here, there = there, here
    if "is there already" not in there.move(here):
        raise Failed("a second command does not say that the volume is there")
    writer.finish()
    if writer.logins != moves + 1:
        raise Failed(f"{moves} moves made {writer.logins} logins")
    here.drain()
    compare(image, writer)
    for gateway in (a, b):
        gateway.stop()
    median, longest = statistics.median(stalls), max(stalls)
    ok(f"{moves} moves, {writer.number} writes: longest round of each move p50 {median * 1e3:.0f} ms, max {longest * 1e3:.0f} ms")


@case("move.killed", "a gateway or the command is killed in a move: one owner, nothing lost or old",
      nightly={"kills": 60}, small={"kills": 6}, area="write-back", limit=240, nightly_limit=1800, tools=("tgtd", "tgtadm"))
def killed(run, kills):
    image, a, b = gateways(run)
    chance, found = random.Random(run.seed), {"moved": 0, "stayed": 0}
    writer = Writer([a.portals[0], b.portals[0]], run.seed)
    writer.start()
    until(lambda: writer.alive() or len(writer.waits) > 5, "the writer writes")
    stalls = []
    for number in range(kills):
        here, there = settled((a, b), writer)
        writer.longest()
        command = here.command(there)
        time.sleep(chance.random() * 0.1)
        victim = (here, there, None)[number % 3]
        if victim:
            victim.kill()
            victim.start()
        else:
            command.kill()
        command.wait(OUTAGE_MAX)
        owner, _ = settled((a, b), writer)
        found["moved" if owner is there else "stayed"] += 1
        rounds = len(writer.waits)
        until(lambda: writer.alive() or len(writer.waits) > rounds + 5, "the writer goes on", OUTAGE_MAX)
        stalls.append(writer.longest())
    writer.finish()
    owner, _ = settled((a, b), writer)
    owner.drain()
    compare(image, writer)
    for gateway in (a, b):
        gateway.stop()
    ok(f"{kills} kills ({found['moved']} moves had been decided, {found['stayed']} not), {writer.number} writes: longest round of "
       f"each p50 {statistics.median(stalls) * 1e3:.0f} ms, max {max(stalls) * 1e3:.0f} ms")
