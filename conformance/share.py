#!/usr/bin/env python3
"""Watches the shares that a gateway tells of, and judges what share.sh has measured. Status 4: something that must
hold does not.

share.py watch SOCKET         every 100 ms a line: seconds since the gateway's start, and by tenant weight, service time
                              in seconds and whether it had any in the last 100 ms
share.py heading
share.py judge WORK CASE POLICY ATTEMPT SLACK FIDELITY
"""

import json
import os
import socket
import sys
import time

NAMES = ["one", "two", "three"]
# What is left out at either end of a phase: hosts do not come and go at the same moment.
EDGE = 0.3
# What a chip of `flash` takes for a page, in seconds; in `reads` all operations are alike.
COSTS = {"flash": {"read": 0.0006, "write": 0.004}, "reads": {"read": 1}}


def watch(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        lines = client.makefile("r")
        while True:
            client.sendall(b'{"version":1,"do":"status"}\n')
            status = json.loads(lines.readline())["status"]
            shares = {one["name"]: [one["weight"], one["service_ns"] / 1e9] for one in status["shares"]}
            print(json.dumps([status["gateway"]["up_ns"] / 1e9, shares]), flush=True)
            time.sleep(0.1)


def phases(samples):
    """Stretches of time in which the same tenants were served with the same weights: begin, end, who with which weight,
    and what each has had."""
    found = []
    for (before, was), (now, shares) in zip(samples, samples[1:]):
        had = {name: shares[name][1] - was.get(name, [0, 0])[1] for name in shares}
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
    """The worst deviation of a share from what the weights say, in per cent of that."""
    weights, all_weights = dict(phase["active"]), sum(weight for _, weight in phase["active"])
    total = sum(phase["had"].values())
    return max(abs(phase["had"][name] / total * all_weights / weights[name] - 1) * 100 for name in weights)


def merged(chosen):
    """Phases with the same tenants and weights taken together."""
    together = {}
    for phase in chosen:
        one = together.setdefault(phase["active"], {"active": phase["active"], "had": {}, "seconds": 0})
        one["seconds"] += phase["seconds"]
        for name, had in phase["had"].items():
            one["had"][name] = one["had"].get(name, 0) + had
    return list(together.values())


def told(phase):
    total = sum(phase["had"].values())
    parts = " ".join(f"{name} {100 * phase['had'][name] / total:.2f}%" for name in NAMES if name in phase["had"])
    return f"{phase['seconds']:.1f} s: {parts}, off {off(phase):.2f}%"


def hosts(work):
    """What each host says of itself; the third may be two."""
    rates = {}
    for name in NAMES:
        with open(f"{work}/{name}.json") as reports:
            rates[name] = [json.loads(line) for line in reports]
    return rates


def judge(work, case, policy, attempt, slack, fidelity):
    samples = [json.loads(line) for line in open(f"{work}/samples")]
    slack, fidelity = float(slack), float(fidelity)
    found = phases(samples)
    whole = merged([phase for phase in found if len(phase["active"]) >= 2])
    faults, lines = [], []
    expected = {"reads": 1, "mixed": 1, "flash": 1, "bursts": 2, "returns": 2, "reload": 2}[case]
    # Moments at which not all have come yet, or some have left already.
    whole = [phase for phase in whole if phase["seconds"] >= 1.5]
    full = [phase for phase in whole if len(phase["active"]) == len(NAMES)]
    if len(whole) < expected or not full:
        faults.append("not all phases were seen")
    for phase in whole:
        lines.append(told(phase))
        if off(phase) > slack:
            faults.append(f"a share is off by more than {slack:g} %")
    if case == "returns":
        # The one that returns has its share at once, and no more.
        back = [phase for phase in found if len(phase["active"]) == len(NAMES)][-1]
        first = {**back, "had": {}, "seconds": 1.0}
        for begin, end, had in back["steps"]:
            if back["begin"] + EDGE <= begin <= back["begin"] + EDGE + 1:
                for name in NAMES:
                    first["had"][name] = first["had"].get(name, 0) + had[name]
        lines.append("back, first " + told(first))
        if off(first) > 2 * slack:
            faults.append("the one that returns has more or less than its share")
    if case in COSTS:
        had = {name: sum(one["iops"] * COSTS[case][one["op"]] for one in reports) for name, reports in hosts(work).items()}
        counted = {"active": full[0]["active"], "had": had, "seconds": 0} if full else None
        if counted:
            lines.append("hosts' counts: " + told(counted).split(": ", 1)[1])
            if off(counted) > slack:
                faults.append("the hosts' own counts say otherwise")
    if case in ("reads", "mixed", "flash"):
        results = json.load(open(f"{work}/sim.json"))["results"]
        rates = {one["name"]: one["requests_per_second"] for one in results["tenants"]}
        # The third is two hosts in mixed and flash.
        live = {name: sum(one["iops"] for one in reports) for name, reports in hosts(work).items()}
        away = {name: 100 * (live[name] / rates[name] - 1) for name in NAMES}
        lines.append("requests a second, and off from simulated: " + ", ".join(f"{name} {live[name]:.0f} {away[name]:+.1f}%" for name in NAMES))
        if max(abs(one) for one in away.values()) > fidelity:
            faults.append(f"a rate is off from the simulated by more than {fidelity:g} %")
    verdict = "; ".join(sorted(set(faults))) or "holds"
    print(f"{case} under {policy}, attempt {attempt}: {verdict}", flush=True)
    for line in lines:
        print(f"    {line}", flush=True)
    return faults


def main():
    what, *arguments = sys.argv[1:]
    if what == "watch":
        return watch(*arguments)
    if what == "heading":
        print(f"weights 4, 2 and 1; {os.cpu_count()} processors")
        return 0
    return 4 if judge(*arguments) else 0


sys.exit(main())
