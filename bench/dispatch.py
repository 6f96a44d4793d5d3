#!/usr/bin/env python3
"""Prints how `fifo`, `fog` and `fair-time` serve traces on each device model.

    bench/dispatch.py WEIR TRACE...

For each trace, device and policy: requests answered and refused, their share of what `fifo` answers in the same
time, mean and 99th percentile of the response time. A device that cannot hold a trace is named and skipped. The exit
code is 1 if `fair-time` has less than 95 % of the rate of `fifo` anywhere.
"""

import json
import pathlib
import subprocess
import sys

DEVICES = ("array-m1", "array-m2", "ssd-paper", "ssd-nvme:64GiB", "fixed:100us,servers=8", "fixed:5ms,servers=1")
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


def main():
    """The table."""
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
