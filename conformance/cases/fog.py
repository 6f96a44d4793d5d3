"""Figures 3 and 5 of the flash operation group paper, live: NVMe queues are streams on the paper's device, emulated.

The device is four emulated chips behind a stripe of 4 KiB, FACTOR times slower than the paper's, so that it is the
bottleneck, not the hosts or the machine. A request of 16 KiB is one page on each chip. One host has a queue for each
stream, with 32 requests outstanding.

figure3  S1 reads; S2 comes, reads, and turns to writing
figure5  S1 to S3 read, S4 and S5 do both, S6 to S8 write, with weights of 1.25^k and as many requests each

The host is the one of this package, or a Linux kernel (guest.fog). The gateway records; `weir reproduce dispatch --live`
replays the recording and prints each figure live beside simulated beside published, and judges it.
"""

import threading
import time

from ..harness.case import Failed, Missed, attempt, case
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.nbd import address_of
from ..harness.nvme import Controller, Stream
from . import guest

SUBSYSTEM = "nqn.2026-11.org.example:fog"
REGION = 32 << 20
# The paper's times of a page in microseconds (table 2).
PAPER = {"register": 100, "read": 50, "program": 900, "erase": 2000}


def serve(run, factor, weights):
    """A gateway that records, on the paper's device, slowed by the factor."""
    memory, config = run.memory(), Config(listen=[])
    config.section("nvme", listen=["127.0.0.1:0"])
    config.section("policy", control="open", dispatch={"name": "fog", "depth": 4, "servers": 1})
    for chip in range(4):
        config.add("backend", name=f"chip{chip}", model="ssd-paper", chips=1, **{key: f"{us * factor}us" for key, us in PAPER.items()})
        config.add("store", name=f"store{chip}", file=memory / f"chip{chip}.img", size=f"{2 * REGION}B", backend=f"chip{chip}", io="buffered")
    config.volume(stores=[f"store{chip}" for chip in range(4)], layout="stripe", chunk="4KiB")
    config.add("subsystem", name=SUBSYSTEM, namespaces={1: "disk"}, streams="queue", queue_shares=weights)
    gateway = Gateway(run, config)
    gateway.start(record=memory / "recording.weir")
    return gateway, memory / "recording.weir"


def turning(controller, seconds):
    """Figure 3: three phases of so many seconds."""
    one, two = (Stream(controller.queue(number), ((number - 1) * REGION, REGION), seed=number) for number in (1, 2))
    begin = time.monotonic()

    def second():
        time.sleep(seconds)
        two.run(until=begin + 2 * seconds)
        two.run(writes=1.0, until=begin + 3 * seconds)
        two.settle()

    def first():
        one.run(until=begin + 3 * seconds)
        one.settle()

    together(first, second)


def eight(controller, requests):
    """Figure 5."""
    writes = [0.0] * 3 + [0.5] * 2 + [1.0] * 3
    streams = [Stream(controller.queue(number + 1), (number * REGION, REGION), seed=number) for number in range(8)]
    together(*(lambda stream=stream, part=part: stream.run(writes=part, count=requests) for stream, part in zip(streams, writes)))


def together(*functions):
    """Each in a thread."""
    faults = []

    def guarded(function):
        try:
            function()
        except Exception as error:  # Reported below.
            faults.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def judge(run, factor, *recordings):
    """The table, from one place. Status 4 is a claim that does not hold."""
    print(f"the device is {factor} times slower than the paper's: the device is the bottleneck")
    words = [word for recording in recordings for word in ("--live", recording)]
    status, said = attempt(run.weir, "reproduce", "dispatch", "--seeds", 3, *words, seconds=300)
    print(said)
    if status not in (0, 4):
        raise Failed(f"weir reproduce: status {status}")
    if status == 4:
        raise Missed("; ".join(line.strip() for line in said.splitlines() if "MUST HOLD" in line))


def client(run, figure, factor, **size):
    gateway, recording = serve(run, factor, WEIGHTS if figure == 5 else {})
    controller = Controller(address_of(gateway.ready["nvme"][0]), SUBSYSTEM)
    if figure == 3:
        turning(controller, **size)
    else:
        eight(controller, **size)
    gateway.stop()
    judge(run, factor, recording)


WEIGHTS = {number: round(1.25 ** (8 - number), 6) for number in range(1, 9)}

case("fog.figure3", "a reader keeps its rate when another stream turns to writing: figure 3 over NVMe/TCP, live",
     nightly={"figure": 3, "factor": 20, "seconds": 15}, attempts=3, limit=600)(client)
case("fog.figure5", "eight queues share the device by their weights: figure 5 over NVMe/TCP, live",
     nightly={"figure": 5, "factor": 10, "requests": 1000}, attempts=3, limit=600)(client)


@case("guest.fog", "figures 3 and 5 with Linux's NVMe driver as the host", nightly={"factor": 40, "phase": 40, "requests": 1000},
      attempts=3, informational=True, guest=True, limit=1500, tools=("qemu-system-x86_64",))
def driver(run, factor, phase, requests):
    gateways = {3: serve(run, factor, {}), 5: serve(run, factor, WEIGHTS)}
    ports = {f"NVME{figure}": gateway.ready["nvme"][0].rpartition(":")[2] for figure, (gateway, _) in gateways.items()}
    variables = {"HOST": guest.HOST, **ports, "SUBSYSTEM": SUBSYSTEM, "PHASE": phase, "REQUESTS": requests, "REGION": REGION}
    said, _ = guest.drive(run, guest.script(run, variables, ["fog"]), cpus=8)
    wrong = guest.faults(said, ["fog"])
    if wrong:
        raise Failed("; ".join(wrong))
    for gateway, _ in gateways.values():
        gateway.stop()
    judge(run, factor, *(recording for _, recording in gateways.values()))
