"""Shares of three hosts with weights 4, 2 and 1, whatever the bottleneck is, over iSCSI and NBD.

ssd-paper   emulated flash of four chips
ssd-nvme    an emulated NVMe drive
memory      files in memory, which are declared to be on one device

Each host reads 4 KiB at random with DEPTH outstanding. Their rates must be within SLACK per cent of the weights where
`weir status` names a bottleneck. Where it names none, the hosts are the bottleneck, and the row says nothing about weights:
so the gateway has a processor of its own and real-time priority, and runs under valgrind, which makes it several times
slower; the hosts have the other processors.
"""

import json
import os
import subprocess
import time

from ..harness import fio
from ..harness.case import TARGET, Failed, Missed, Skipped, attempt, case
from ..harness.config import Config
from ..harness.gateway import Gateway
from .share import SLACK, WEIGHTS, off

# While the thread is full as many operations as at the device, 128 at first, wait for it. A host must keep its part of both.
DEPTH = 256
DEVICES = {
    "ssd-paper": {"model": "ssd-paper"},
    "ssd-nvme": {"model": "ssd-nvme", "capacity": "1GiB"},
    "memory": {"model": "fixed", "service": "1ns", "servers": 65536},
}
SLOWED = ("valgrind", "--tool=none", "--quiet", "--log-file=/dev/null")
# Seconds until hosts are measured; the depth is found in that time.
WARM_UP = 4


def placed():
    """The words before the command of the gateway and before those of its hosts."""
    first, *others = map(str, sorted(os.sched_getaffinity(0)))
    if not others or attempt("chrt", "-f", "1", "nice", "-n", "-15", "true")[0]:
        raise Skipped("this needs two processors and real-time priority")
    return ("taskset", "-c", first, "chrt", "-f", "1", *SLOWED), ("taskset", "-c", ",".join(others), "nice", "-n", "-15")


def gateway_of(run, memory, device, where, prefix):
    config = Config(max_commands=DEPTH).section("policy", dispatch={"name": "fair-time"})
    config.add("backend", name="device", **DEVICES[device])
    for name, weight in WEIGHTS.items():
        config.add("tenant", name=name, share=weight)
        config.volume(name, file=memory / f"{device}.{name}.img", size="64MiB", io="buffered", backend="device")
        config.target(name, name=f"{TARGET}-{name}")
    gateway = Gateway(run, config.nbd(*WEIGHTS, unix=[where]))
    gateway.start(prefix=prefix)
    return gateway


def over_iscsi(run, gateway, seconds, _):
    """The command of a host that reads over iSCSI, for each tenant; and its rate from what it prints."""
    def words(name):
        return [run.load_program, "--url", f"{gateway.portals[0]}/{TARGET}-{name}/0", "--depth", DEPTH, "--seconds", seconds + WARM_UP]

    return words, lambda said: json.loads(said.splitlines()[-1])["iops"]


def over_nbd(_, __, seconds, where):
    def words(name):
        uri = f"nbd+unix:///{name}?socket={where}"
        return fio.words(name, uri, rw="randread", bs="4k", iodepth=DEPTH, size="64m", time_based=True, runtime=seconds, ramp_time=WARM_UP,
                         randrepeat=0) + ["--output-format=json"]

    return words, lambda said: json.loads(said[said.find("{"):])["jobs"][0]["read"]["iops"]


@case("share.devices", "hosts at weights 4, 2 and 1 get their shares of emulated flash and of files in memory, over iSCSI and NBD",
      nightly={"seconds": 8}, attempts=3, informational=True, tools=("fio", "taskset", "valgrind"))
def devices(run, seconds):
    memory, missed, (before_gateway, before_host) = run.memory(), [], placed()
    wanted = {name: 100 * weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    print(f"{'':10} {'':6} {'IOPS':>8}" + "".join(f" {name:>6}" for name in WEIGHTS) + f" {'off':>6}  bottleneck")
    print(f"{'weights':25}" + "".join(f" {share:5.1f}%" for share in wanted.values()))
    for device in DEVICES:
        for protocol, hosts in (("iSCSI", over_iscsi), ("NBD", over_nbd)):
            where = run.folder / "nbd.socket"
            gateway = gateway_of(run, memory, device, where, before_gateway)
            words, rate_of = hosts(run, gateway, seconds, where)
            started = {name: run.spawn(*before_host, *words(name), stdout=subprocess.PIPE, text=True, cwd=run.folder) for name in WEIGHTS}
            time.sleep(WARM_UP + seconds / 2)
            status = gateway.ask("status")["status"]["gateway"]
            rates = {}
            for name, process in started.items():
                said, _ = process.communicate(timeout=60)
                if process.returncode:
                    raise Failed(f"host {name} failed: {said[-300:]}")
                rates[name] = rate_of(said)
            gateway.stop()
            deviation = off({"active": tuple(WEIGHTS.items()), "had": rates})
            parts = "".join(f" {100 * rate / sum(rates.values()):5.1f}%" for rate in rates.values())
            print(f"{device:10} {protocol:6} {sum(rates.values()):8.0f}{parts} {deviation:5.1f}%  {status['bottleneck'] or 'hosts'}, "
                  f"thread {100 * status['busy']:.0f} % busy", flush=True)
            if not status["bottleneck"]:
                missed.append(f"{device} over {protocol}: the hosts are the bottleneck")
            elif deviation > SLACK:
                missed.append(f"{device} over {protocol} is off by {deviation:.1f} %")
    if missed:
        raise Missed("; ".join(missed))
