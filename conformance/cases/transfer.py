"""The order of replies: small reads at depth 1 beside large reads at depth 16, and the same in `weir sim`.

link  over 50 Mbit/s between two network namespaces, which the gateway knows (`[[link]]`), so that replies wait in
      its line: under each policy, the mean and the 99th percentile of the small reads and the throughput of the large
      ones are those of `weir sim` within FIDELITY per cent. Beside it what happens without that table: a line for each
      connection, and the network's queue the only one that they share
idle  over loopback, 4 KiB at depth 32: operations a second under `slack` against `fifo`, in turns
"""

import json
import os
import statistics
import subprocess

from ..harness.case import TARGET, Failed, Missed, attempt, case, output
from ..harness.config import Config
from ..harness.gateway import Gateway

FIDELITY = 10
# 50 Mbit/s of Ethernet frames are 5.98 MB/s of TCP payload; the shaper is sometimes late.
BANDWIDTH = "5.6MB/s"
# Pause between small reads, in microseconds; without it, microseconds decide whether a read is before or after the
# next chunk of a large reply.
THINK = 4000
ADDRESS = "10.0.0.1:3260"
POLICIES = {"fifo": {}, "dqbs": {}, "slack": {}, "slack_chunk": {"chunk": "16KiB"}, "slack_budget": {"budget": "1MiB"}}
# Maximum loss of `slack` compared with `fifo` on an idle link, in per cent; informational.
LOSS = 1


class Network:
    """Two namespaces; traffic from the gateway is shaped, with a queue of an eighth of a second."""

    def __init__(self, run):
        self.near, self.far = f"weir-near-{os.getpid()}", f"weir-far-{os.getpid()}"
        for space in (self.near, self.far):
            output("ip", "netns", "add", space)
            run.defer(attempt, "ip", "netns", "del", space)
        output("ip", "link", "add", "near", "netns", self.near, "type", "veth", "peer", "name", "far", "netns", self.far)
        for space, device, address in ((self.near, "near", "10.0.0.1/24"), (self.far, "far", "10.0.0.2/24")):
            output("ip", "-n", space, "link", "set", "lo", "up")
            output("ip", "-n", space, "address", "add", address, "dev", device)
            output("ip", "-n", space, "link", "set", device, "up")
        # This congestion control fills the queue, like the common ones, and is allowed everywhere.
        output("ip", "netns", "exec", self.near, "sysctl", "-q", "net.ipv4.tcp_congestion_control=reno")
        output("ip", "netns", "exec", self.near, "tc", "qdisc", "add", "dev", "near", "root", "tbf", "rate", "50mbit", "burst", "16kb",
               "limit", "780kb")


def configured(run, address, policy):
    config = Config(listen=[address]).section("policy", transfer=policy)
    for name in ("small", "large"):
        config.volume(name, file=run.folder / f"{name}.img", size="64MiB", io="buffered").target(name, name=f"{TARGET}-{name}")
    return config


def live(run, network, policy, seconds, link=True):
    """Mean, p99 and the slowest small read in milliseconds, and MB/s of the large ones."""
    config = configured(run, ADDRESS, policy)
    if link:
        config.add("link", name="front", listen=[ADDRESS], bandwidth=BANDWIDTH)
    gateway = Gateway(run, config)
    gateway.start(prefix=("ip", "netns", "exec", network.near))
    hosts = [run.spawn("ip", "netns", "exec", network.far, run.load_program, "--url", f"{ADDRESS}/{TARGET}-{name}/0", "--seconds", seconds,
                       *words, stdout=subprocess.PIPE, text=True)
             for name, words in (("large", ("--depth", 16, "--block", 1 << 20)), ("small", ("--think", THINK)))]
    reports = []
    for host in hosts:
        said, _ = host.communicate(timeout=seconds + 60)
        if host.returncode:
            raise Failed(f"a host failed: {said[-300:]}")
        reports.append(json.loads(said.splitlines()[-1]))
    gateway.stop()
    large, small = reports
    return [small["mean_us"] / 1e3, small["p99_us"] / 1e3, small["max_us"] / 1e3, large["mb_per_s"]]


def simulated(run, policy, seconds):
    config = Config.plan().section("policy", transfer=policy).section("limits", link_window=1)
    config.section("run", duration=f"{seconds}s", warm_up="5s", drain=False)
    config.add("backend", name="memory", model="fixed", service="100us", servers=64).add("link", name="front", bandwidth=BANDWIDTH)
    for name, keys in (("small", {"depth": 1, "think": f"{THINK}us", "size": "4KiB"}), ("large", {"depth": 16, "size": "1MiB"})):
        config.volume(name, size="64MiB", backend="memory")
        config.add("workload", name=name, tenant=name, volume=name, arrivals="closed", **keys)
    plan = run.folder / "plan.toml"
    plan.write_text(config.text())
    tenants = {one["name"]: one for one in run.simulate(plan)["tenants"]}
    small, large = tenants["small"]["response"], tenants["large"]
    return [small[one] / 1e6 for one in ("mean_ns", "p99_ns", "max_ns")] + [large["requests_per_second"] * 1.048576]


def row(what, cells, form="{:12.2f}"):
    print(f"{what:<28}" + "".join(form.format(one) for one in cells))


def over_link(run, policy, seconds):
    name, network = policy["name"], Network(run)
    print(f"{'':<28}{'mean, ms':>12}{'p99, ms':>12}{'max, ms':>12}{'MB/s':>12}")
    if policy == {"name": "fifo"}:
        row("a queue per connection", live(run, network, policy, seconds, link=False))
    expected, found = simulated(run, policy, seconds), live(run, network, policy, seconds)
    away = [100 * (one / other - 1) for one, other in zip(found, expected)]
    row(name, found)
    row("  simulated", expected)
    row("  off, %", away, "{:+12.1f}")
    # The maximum depends on a single read.
    if max(abs(one) for one in away[:2] + away[3:]) > FIDELITY:
        raise Missed(f"more than {FIDELITY} % off the simulation under {name}")


for title, keys in POLICIES.items():
    case(f"transfer.link_{title}", f"replies wait on a slow link as simulated under {title}",
         nightly={"policy": {"name": title.partition("_")[0], **keys}, "seconds": 20}, attempts=3, informational=True, root=True,
         tools=("ip", "tc"))(over_link)


@case("transfer.idle", "`slack` costs no throughput on an idle link", nightly={"rounds": 9}, informational=True)
def idle(run, rounds):
    runs = {"fifo": [], "slack": []}
    for number in range(rounds):
        # Neither policy has an advantage from the order.
        for policy in (sorted(runs) if number % 2 else sorted(runs, reverse=True)):
            gateway = Gateway(run, configured(run, "127.0.0.1:0", policy))
            gateway.start()
            said = output(run.load_program, "--url", f"{gateway.portals[0]}/{TARGET}-small/0", "--depth", 32, "--seconds", 2,
                          "--server-pid", gateway.pid)
            runs[policy].append(json.loads(said.splitlines()[-1]))
            gateway.stop()
    losses = []
    for what, unit in (("iops", "operations a second"), ("server_cpu_us_per_io", "us of the gateway's CPU time each")):
        ratios = sorted(slack[what] / fifo[what] for slack, fifo in zip(runs["slack"], runs["fifo"]))
        middle = statistics.median(one[what] for one in runs["fifo"])
        print(f"fifo: {middle:.2f} {unit}; slack has {statistics.median(ratios):.3f} of that, {ratios[0]:.3f} to {ratios[-1]:.3f}")
        losses.append(100 * (1 - statistics.median(ratios)))
    if losses[0] > LOSS:
        raise Missed(f"`slack` loses {losses[0]:.1f} % of the throughput")
