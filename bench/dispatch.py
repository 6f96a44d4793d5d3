#!/usr/bin/env python3
"""Prints how `fifo`, `fog` and `fair-time` serve traces on each device model.

    bench/dispatch.py WEIR TRACE...
    bench/dispatch.py --shares WEIR TRACE SPEED SECONDS

For each trace, device and policy: requests answered and refused, their share of what `fifo` answers in the same
time, mean and 99th percentile of the response time. SSDs are as large as the trace needs. A device that cannot hold a
trace is named and skipped. The exit code is 1 if `fair-time` has less than 95 % of the rate of `fifo` anywhere.

With `--shares` three tenants of weights 4, 2 and 1 replay the same trace on volumes of their own at once, so fast that all of
them always wait, on `array-m1`, whose mean service times are known. The first quarter of the seconds is not measured. The
exit code is 1 if `fair-time` moves less than 95 % of the bytes of `fifo`, or if a tenant's part of the time of disks, buses and links
is more than 5 % off its weight.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

DEVICES = ("array-m1", "array-m2", "ssd-paper", "ssd-nvme", "fixed:100us,servers=8", "fixed:5ms,servers=1")
POLICIES = ("fifo", "fog", "fair-time")


def replay(weir, trace, device, policy):
    """The totals of a run; the reason instead if there is none."""
    command = [weir, "replay", trace, "--device", device, "--dispatch", policy, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0]
    return json.loads(done.stdout)["results"], None


def figures(results):
    """Answered, refused, answers a second, mean and p99 in milliseconds."""
    totals = results["totals"]
    answered = totals["completed"]
    seconds = results["virtual_ns"] / 1e9
    response = results["all"]["response"]
    return answered, totals["refused"], answered / seconds, response["mean_ns"] / 1e6, response["p99_ns"] / 1e6


WEIGHTS = (4, 2, 1)


def plan(trace, speed, seconds, policy):
    """A plan of three tenants who replay a trace."""
    parts = [
        f"[run]\nduration = \"{seconds}s\"\nwarm_up = \"{seconds / 4}s\"\ndrain = false",
        f"[policy]\ndispatch = \"{policy}\"",
        "[[backend]]\nname = \"array\"\nmodel = \"array-m1\"",
    ]
    for tenant, weight in enumerate(WEIGHTS):
        parts += [
            f"[[volume]]\nname = \"volume{tenant}\"\nsize = \"8TiB\"",
            f"[[tenant]]\nname = \"tenant{tenant}\"\nshare = {weight}",
            f"[[trace]]\nfile = \"{trace}\"\nvolume = \"volume{tenant}\"\ntenant = \"tenant{tenant}\"\nspeed = {speed}",
        ]
    return "\n".join(parts)


def service(tenant):
    """Seconds of disks, buses and links of `array-m1` that a tenant's requests take in the mean."""
    count, size = tenant["count"], tenant["bytes"]
    return count * 1.443e-3 + (size - count * 4096) / 36.2e6 + size / 80e6 + size / 100e6


def shares(weir, trace, speed, seconds):
    """Shares of three tenants, and the bytes of all."""
    trace = pathlib.Path(trace).resolve()
    moved = {}
    for policy in ("fifo", "fair-time"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.toml")
            path.write_text(plan(trace, speed, float(seconds), policy), encoding="utf-8")
            command = [weir, "sim", path, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        results = json.loads(done.stdout)["results"]
        times = [service(tenant) for tenant in results["tenants"]]
        parts = [time / sum(times) for time in times]
        off = max(abs(part / weight * sum(WEIGHTS) - 1) for part, weight in zip(parts, WEIGHTS, strict=True))
        moved[policy] = results["all"]["megabytes_per_second"]
        text = " ".join(f"{100 * part:5.1f}" for part in parts)
        name = trace.name.split(".")[0]
        print(f"{name:24} {policy:10} {moved[policy]:7.1f} MB/s, parts {text} %, {100 * off:5.1f} % off the weights")
    sys.exit(moved["fair-time"] < 0.95 * moved["fifo"] or off > 0.05)


def main():
    """The table."""
    if sys.argv[1:2] == ["--shares"] and len(sys.argv) == 6:
        shares(*sys.argv[2:])
    weir, *traces = sys.argv[1:]
    if not traces:
        sys.exit(__doc__)
    print(f"{'trace':24} {'device':22} {'policy':10} {'answered':>9} {'refused':>8} {'of fifo':>8} {'mean ms':>10} {'p99 ms':>10}")
    low = skipped = 0
    for trace in traces:
        name = pathlib.Path(trace).name.split(".")[0]
        for device in DEVICES:
            base = None
            for policy in POLICIES:
                results, why = replay(weir, trace, device, policy)
                if why:
                    print(f"{name:24} {device:22} SKIPPED: {why}")
                    skipped += 1
                    break
                answered, refused, rate, mean, p99 = figures(results)
                base = base or rate
                share = rate / base
                mark = ""
                if policy == "fair-time" and share < 0.95:
                    low, mark = low + 1, "  TOO LITTLE"
                print(f"{name:24} {device:22} {policy:10} {answered:9} {refused:8} {share:8.3f} {mean:10.3f} {p99:10.3f}{mark}", flush=True)
    print(f"{low} times fair-time has less than 95 % of fifo's rate; {skipped} devices skipped")
    sys.exit(low > 0)


main()
