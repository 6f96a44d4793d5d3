#!/usr/bin/env python3
"""Judges what control.sh has measured. Status 4: something that must hold does not.

control.py WORK heading
control.py WORK contract POLICY ATTEMPT WARM_UP SECONDS
control.py WORK caps ATTEMPT
"""

import json
import math
import sys

PROMISE_MS = 41
MEAN_PERCENT = 5
P99_PERCENT = 10
LAYOUT = "{:7}{:>3}{:>7} |{:>9}{:>9}{:>8}{:>8} |{:>8}{:>9}{:>8}{:>8} | {}"


def gateway(work, tenant):
    """When each request of a tenant came and ended, in seconds from its first, as the gateway saw it."""
    told = json.load(open(f"{work}/recorded.json"))["explanation"]
    if told["ended"] > len(told["requests"]):
        sys.exit("more requests were recorded than `weir explain` tells of")
    rows = sorted((one["arrived_ns"], one["response_ns"]) for one in told["requests"] if one["tenant"] == tenant)
    first = rows[0][0]
    return [((came - first) / 1e9, (came + took - first) / 1e9) for came, took in rows]


def host(work, name):
    """The same as fio saw it, from its own start; it tells endings in milliseconds."""
    rows = [line.split(",") for line in open(f"{work}/{name}_clat.log")]
    return sorted((int(row[0]) / 1e3 - int(row[1]) / 1e9, int(row[0]) / 1e3) for row in rows)


def measure(requests, begin, end):
    """Mean and p99 in milliseconds of the requests that came in that time, and how many that were."""
    times = sorted(1e3 * (ended - came) for came, ended in requests if begin <= came < end)
    return sum(times) / len(times), times[math.ceil(0.99 * len(times)) - 1], len(times)


def contract(work, policy, attempt, warm_up, seconds):
    results = json.load(open(f"{work}/sim-{policy}.json"))["results"]
    simulated = next(one for one in results["tenants"] if one["name"] == "w1")["response"]
    expected = simulated["mean_ns"] / 1e6, simulated["p99_ns"] / 1e6
    begin, end = int(warm_up), int(warm_up) + int(seconds)
    at_gateway = measure(gateway(work, 0), begin, end)
    at_host = measure(host(work, "w1"), begin, end)
    off = [100 * (live / sim - 1) for live, sim in zip(at_gateway, expected)]
    faults = []
    worst, best = max(at_gateway[1], at_host[1]), min(at_gateway[1], at_host[1])
    if policy == "open" and best <= PROMISE_MS:
        faults.append("w1 keeps its time without control")
    if policy != "open" and worst > PROMISE_MS:
        faults.append("w1 loses its time")
    if abs(off[0]) > MEAN_PERCENT:
        faults.append("the mean is not as simulated")
    if abs(off[1]) > P99_PERCENT:
        faults.append("p99 is not as simulated")
    cells = []
    for index in range(2):
        cells += [f"{expected[index]:.2f}", f"{at_gateway[index]:.2f}", f"{off[index]:+.1f}%", f"{at_host[index]:.2f}"]
    verdict = "; ".join(faults) or ("loses its time, as it must" if policy == "open" else "keeps its time")
    print(LAYOUT.format(policy, attempt, f"{at_gateway[2] / int(seconds):.0f}", *cells, verdict), flush=True)
    return faults


def caps(work, attempt):
    faults = []
    print(f"{'cap':>5}{'attempt':>9}  requests that ended in each second: least and most at the gateway, at the host")
    for tenant, (name, cap, slack) in enumerate([("five", 500, 5), ("one", 1, 0)]):
        # Windows of the one begin half-way between two requests, so that none is cut in two; those of the
        # other begin at every tenth of a second.
        step = 0.1 if cap > 1 else 1
        cells = []
        for requests in [gateway(work, tenant), host(work, name)]:
            ends = sorted(ended for _, ended in requests)
            # The first second has what a cap lets through at once, and fio stops in the last.
            begin = ends[0] + (1 if cap > 1 else 0.5)
            windows = [begin + step * index for index in range(round(9 / step))]
            counts = [sum(at <= end < at + 1 for end in ends) for at in windows]
            cells.append(f"{min(counts)} to {max(counts)}")
            if min(counts) < cap - slack or max(counts) > cap + slack:
                faults.append(name)
        print(f"{cap:>5}{attempt:>9}  {cells[0]}, {cells[1]}" + ("" if name not in faults else "  not so"), flush=True)
    return faults


def main():
    work, what, *arguments = sys.argv[1:]
    if what == "heading":
        print("w1, in ms; a deviation is that of the gateway's measurement from the simulated value")
        print(LAYOUT.format("policy", "try", "req/s", "mean:sim", "gateway", "off", "host", "p99:sim", "gateway", "off", "host", "verdict"))
        return 0
    return 4 if {"contract": contract, "caps": caps}[what](work, *arguments) else 0


sys.exit(main())
