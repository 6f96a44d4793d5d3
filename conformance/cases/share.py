"""Weighted shares of one backend's time, with three hosts over iSCSI, and the same experiment in `weir sim` beside it.

Three tenants, weights 4, 2 and 1, on one modelled device, which takes its time in real time:

reads    each reads 4 KiB, with 128 outstanding, from a device that executes four at once
mixed    the first reads 4 KiB, the second writes 64 KiB, the third does both, on a disk where the large ones take three
         times as long
flash    the first reads and the second writes 4 KiB, the third does both, on emulated flash of four chips, where a
         write takes seven times as long and only the chips know which of them is busy
bursts   as reads, but the second comes for two seconds and goes for one and a half, again and again: the others have
         what it leaves, by their weights, and while it is there it has its own
returns  as reads, but the second leaves for seconds and comes back: it has its share from the first seconds on, and
         no more
reload   as reads; then a new configuration turns the weights round, without a restart

The gateway's own account of service times must be within SLACK per cent of the weights, with each policy that charges
time. For reads the hosts' own counts must agree, as all operations cost the same there; for flash, their counts by
what the chips take for a read and a write. `weir sim` with the same plan must give each host the same rate within
FIDELITY per cent, in reads, mixed and flash. All of it depends on how busy the machine is.
"""

import json
import subprocess
import threading
import time

from ..harness.case import TARGET, Failed, Missed, case
from ..harness.config import Config
from ..harness.gateway import Gateway

WEIGHTS = {"one": 4, "two": 2, "three": 1}
# Outstanding requests for a fifth of a second: the longest delay of a host on a busy machine.
DEPTH = 128
SLACK, FIDELITY = 3, 5
# Seconds that are ignored at either end of a phase, because hosts do not start and stop at the same moment.
EDGE = 0.3
# Service times of a page on a chip of `flash`, in seconds; in `reads` all operations are equal.
COSTS = {"flash": {"read": 0.0006, "write": 0.004}, "reads": {"read": 1}}
SIMULATED = ("reads", "mixed", "flash")
DEVICES = {
    "mixed": (1, {"model": "array-m1", "disks": 1, "buses": 1, "links": 1, "mean_service": "2ms", "media": "15MB/s", "bus": "100GB/s",
                  "link": "100GB/s"}),
    "flash": (0, {"model": "ssd-paper", "read": "200us", "register": "400us", "program": "3600us", "erase": "8ms"}),
}
USUAL = (4, {"model": "fixed", "service": "4ms", "servers": 4})


def common(config, policy, kind):
    """The common part of the gateway's configuration and the plan."""
    servers, device = DEVICES.get(kind, USUAL)
    # Twice the number of operations that the device executes at once, so that it stays busy when the machine delays
    # the gateway.
    dispatch = {"name": policy, "depth": 2 * servers or 16, "servers": servers}
    config.section("policy", dispatch=dispatch)
    for name, weight in WEIGHTS.items():
        config.add("tenant", name=name, share=weight)
    return config.add("backend", name="device", **device)


class Experiment:
    """A gateway that serves the three volumes, its hosts, and samples of the shares that it reports."""

    def __init__(self, run, policy, kind):
        self.run, self.hosts, self.samples, self.over = run, [], [], threading.Event()
        config = common(Config(), policy, kind)
        for name in WEIGHTS:
            config.volume(name, file=run.folder / f"{name}.img", size="64MiB", io="buffered", backend="device")
            config.target(name, name=f"{TARGET}-{name}")
        self.gateway = Gateway(run, config)
        self.gateway.start()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self):
        """Every 100 ms: seconds since the gateway's start, and by tenant weight and service time in seconds."""
        while not self.over.is_set():
            status = self.gateway.ask("status")["status"]
            self.samples.append((status["gateway"]["up_ns"] / 1e9,
                                 {one["name"]: (one["weight"], one["service_ns"] / 1e9) for one in status["shares"]}))
            time.sleep(0.1)

    def host(self, name, seconds, depth=DEPTH, block=4096, write=False):
        words = ["--depth", depth, "--seconds", seconds, "--block", block] + ["--write"] * write
        self.hosts.append((name, self.run.spawn(self.run.load_program, "--url", f"{self.gateway.portals[0]}/{TARGET}-{name}/0", *words,
                                                stdout=subprocess.PIPE, text=True)))

    def mixed_hosts(self, seconds, block):
        self.host("one", seconds)
        self.host("two", seconds, 32, block, True)
        self.host("three", seconds, 16)
        self.host("three", seconds, 16, block, True)

    def settle(self):
        """The reports of the hosts; the third may be two processes."""
        reports = {name: [] for name in WEIGHTS}
        for name, process in self.hosts:
            said, _ = process.communicate(timeout=120)
            if process.returncode:
                raise Failed(f"host {name} failed: {said[-300:]}")
            reports[name].append(json.loads(said.splitlines()[-1]))
        self.over.set()
        self.watcher.join()
        self.gateway.stop()
        return reports


def simulated(run, policy, kind, seconds):
    """Requests a second of each tenant."""
    config = common(Config.plan(), policy, kind).section("run", duration=f"{seconds + 2}s", warm_up="2s", drain=False)
    for name in WEIGHTS:
        config.volume(name, size="64MiB", backend="device")
    size = {"mixed": "64KiB", "flash": "4KiB"}.get(kind)
    loads = [("one", DEPTH, "4KiB", 1), ("two", 32, size, 0), ("three", 16, "4KiB", 1), ("three", 16, size, 0)]
    if size is None:
        loads = [(name, DEPTH, "4KiB", 1) for name in WEIGHTS]
    for number, (name, depth, bytes_, share) in enumerate(loads):
        config.add("workload", name=f"load{number}", tenant=name, volume=name, arrivals="closed", depth=depth, size=bytes_, reads=share)
    plan = run.folder / "plan.toml"
    plan.write_text(config.text())
    return {one["name"]: one["requests_per_second"] for one in run.simulate(plan)["tenants"]}


def phases(samples):
    """Periods with the same active tenants and weights: begin, end, the weights by tenant, and the service time of
    each."""
    found = []
    for (before, was), (now, shares) in zip(samples, samples[1:]):
        had = {name: shares[name][1] - was.get(name, (0, 0))[1] for name in shares}
        active = tuple(sorted((name, shares[name][0]) for name in had if had[name] > 0))
        if found and found[-1]["active"] == active:
            found[-1]["end"] = now
            found[-1]["steps"].append((before, now, had))
        else:
            found.append({"active": active, "begin": before, "end": now, "steps": [(before, now, had)]})
    for phase in found:
        inside = [had for begin, end, had in phase["steps"] if begin >= phase["begin"] + EDGE and end <= phase["end"] - EDGE]
        phase["had"] = {name: sum(had.get(name, 0) for had in inside) for name, _ in phase["active"]}
        phase["seconds"] = 0.1 * len(inside)
    return [phase for phase in found if phase["seconds"] > 0]


def off(phase):
    """The worst deviation of a share from the weights, in per cent of it."""
    weights, all_weights = dict(phase["active"]), sum(weight for _, weight in phase["active"])
    total = sum(phase["had"].values())
    return max(abs(phase["had"][name] / total * all_weights / weights[name] - 1) * 100 for name in weights)


def merged(chosen):
    """Merges phases with the same tenants and weights."""
    together = {}
    for phase in chosen:
        one = together.setdefault(phase["active"], {"active": phase["active"], "had": {}, "seconds": 0})
        one["seconds"] += phase["seconds"]
        for name, had in phase["had"].items():
            one["had"][name] = one["had"].get(name, 0) + had
    return list(together.values())


def shown(phase):
    total = sum(phase["had"].values())
    parts = " ".join(f"{name} {100 * phase['had'][name] / total:.2f}%" for name in WEIGHTS if name in phase["had"])
    return f"{phase['seconds']:.1f} s: {parts}, off {off(phase):.2f}%"


def judge(kind, found, reports, rates):
    """The deviations from the expected shares."""
    faults = []
    # Ignores moments at which not all hosts are active.
    whole = [phase for phase in merged([phase for phase in found if len(phase["active"]) >= 2]) if phase["seconds"] >= 1.5]
    full = [phase for phase in whole if len(phase["active"]) == len(WEIGHTS)]
    if len(whole) < (1 if kind in SIMULATED else 2) or not full:
        return ["not all phases were seen"]
    for phase in whole:
        print(f"    {shown(phase)}")
        if off(phase) > SLACK:
            faults.append(f"a share is off by {off(phase):.1f} %")
    if kind == "returns":
        # A tenant that returns gets exactly its share at once.
        back = [phase for phase in found if len(phase["active"]) == len(WEIGHTS)][-1]
        first = {**back, "had": {}, "seconds": 1.0}
        for begin, _, had in back["steps"]:
            if back["begin"] + EDGE <= begin <= back["begin"] + EDGE + 1:
                for name in WEIGHTS:
                    first["had"][name] = first["had"].get(name, 0) + had[name]
        print(f"    back, first {shown(first)}")
        if off(first) > 2 * SLACK:
            faults.append("the returning tenant has more or less than its share")
    if kind in COSTS:
        had = {name: sum(one["iops"] * COSTS[kind][one["op"]] for one in some) for name, some in reports.items()}
        counted = {"active": full[0]["active"], "had": had, "seconds": 0}
        print(f"    hosts' counts: {shown(counted).split(': ', 1)[1]}")
        if off(counted) > SLACK:
            faults.append("the hosts' own counts differ")
    if rates:
        live = {name: sum(one["iops"] for one in some) for name, some in reports.items()}
        away = {name: 100 * (live[name] / rates[name] - 1) for name in WEIGHTS}
        print("    requests a second, and off from simulated: " + ", ".join(f"{name} {live[name]:.0f} {away[name]:+.1f}%" for name in WEIGHTS))
        if max(abs(one) for one in away.values()) > FIDELITY:
            faults.append(f"a rate is off from the simulated by more than {FIDELITY} %")
    return faults


def share(run, kind, policy, seconds):
    live, rates = Experiment(run, policy, kind), None
    if kind == "mixed":
        live.mixed_hosts(seconds, 65536)
    elif kind == "flash":
        live.mixed_hosts(seconds, 4096)
    elif kind in ("bursts", "returns"):
        long = seconds if kind == "bursts" else 2 * seconds
        live.host("one", long)
        live.host("three", long)
        if kind == "bursts":
            # Half a second of warm-up, one second of measurement, and half a second for outstanding requests to
            # complete.
            for _ in range(2 * seconds // 7):
                live.host("two", 1)
                time.sleep(3.5)
        else:
            live.host("two", seconds // 2)
            time.sleep(seconds // 2 + 4)
            live.host("two", seconds // 2)
    else:
        for name in WEIGHTS:
            live.host(name, seconds if kind == "reads" else 2 * seconds)
    if kind == "reload":
        time.sleep(seconds)
        live.gateway.config.change("tenant", "one", share=0.5)
        live.gateway.reload()
    if kind in SIMULATED:
        rates = simulated(run, policy, kind, seconds)
    reports = live.settle()
    print(f"{kind} under {policy}")
    faults = judge(kind, phases(live.samples), reports, rates)
    if faults:
        raise Missed("; ".join(sorted(set(faults))))


for chosen in ("reads", "mixed", "flash", "bursts", "returns", "reload"):
    for how in ("fog", "fair-time"):
        case(f"share.{chosen}_{how}", f"`{how}` divides backend time among tenants by weight: {chosen}",
             nightly={"kind": chosen, "policy": how, "seconds": 10}, attempts=3, informational=True)(share)
