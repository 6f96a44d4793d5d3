#!/usr/bin/env python3
"""Compares the response times of an emulated device, as hosts and the gateway measured them, with its model's.

    emulated.py WEIR RECORDING VOLUME SIZE BACKEND HOSTS [JUDGED]

RECORDING is of `weir serve --record`, VOLUME the number in it of the volume on the device, SIZE its size, and BACKEND
a file with the device's `[[backend]]` table. All requests of the volume are run again by `weir sim` on the same model,
at the times at which they came: that is the model's distribution. The gateway's is from when a request had come to
when the last byte of its reply had left, out of the recording.

HOSTS is what fio said: lines `PHASE OP DEPTH FILE`, FILE its log of completion latencies. The last DEPTH are left out:
fio waits for those together at the end of a job and takes the time when it has all of them. A phase begins after the host has
read 3 * 512 bytes at offset 0 and ends when it has read 5 * 512 bytes there; without such reads all is phase 1. Of a
phase the requests of 4 KiB with its operation count.

Median, 90th and 99th percentile of both must be within 10 % of the model's; if JUDGED is 90, the 99th of the host is shown
and not judged. The status is 4 if one is not.
"""

import csv
import json
import math
import os
import subprocess
import sys

SHARES = (50, 90, 99)
BOUND = 0.1
BEGINS, ENDS = 3 * 512, 5 * 512


def explained(weir, recording):
    answer = subprocess.run([weir, "explain", recording, "--slowest", "100000", "--json"], stdout=subprocess.PIPE)
    if answer.returncode:
        sys.exit(f"weir explain left with status {answer.returncode}")
    answer = json.loads(answer.stdout)
    stories, ended = answer["explanation"]["requests"], answer["explanation"]["ended"]
    if len(stories) != ended:
        sys.exit(f"{ended} requests are more than `weir explain` tells of, {len(stories)}")
    return sorted(stories, key=lambda story: story["arrived_ns"])


def phased(stories, volume):
    """The reads and writes of a volume, each with its phase; 0 is none."""
    marked = any(story["length"] == BEGINS for story in stories if story["op"] == "read")
    phase, number = (0, 0) if marked else (1, 1)
    for story in stories:
        if story["volume"] != volume or story["op"] not in ("read", "write"):
            continue
        here = phase
        if marked and story["op"] == "read" and story["offset"] == 0 and story["length"] in (BEGINS, ENDS):
            here = 0
            number += story["length"] == BEGINS
            phase = number if story["length"] == BEGINS else 0
        yield (here if story["length"] == 4096 else 0), story


def nearest_rank(times, share):
    return sorted(times)[max(math.ceil(len(times) * share / 100), 1) - 1]


def simulated(weir, folder, requests, size, backend):
    """What the model takes, by phase and operation."""
    trace, plan = os.path.join(folder, "emulated.csv"), os.path.join(folder, "emulated.plan.toml")
    with open(trace, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time_ns", "op", "dev", "offset", "size"])
        for phase, story in requests:
            rows.writerow([story["arrived_ns"], story["op"][0].upper(), phase, story["offset"], story["length"]])
    phases = sorted({phase for phase, _ in requests})
    devices = ", ".join(f'{phase} = {{ volume = "disk", tenant = "phase{phase}" }}' for phase in phases)
    with open(plan, "w") as file:
        file.write("seed = 1\n" + open(backend).read())
        file.write(f'[[volume]]\nname = "disk"\nsize = "{size}"\n')
        file.write(f'[[trace]]\nfile = "{trace}"\ndevices = {{ {devices} }}\n')
    answer = subprocess.run([weir, "explain", plan, "--slowest", "100000", "--json"], stdout=subprocess.PIPE)
    if answer.returncode:
        sys.exit(f"weir explain left with status {answer.returncode}")
    answer = json.loads(answer.stdout)
    times = {}
    for story in answer["explanation"]["requests"]:
        phase = int(answer["tenants"][story["tenant"]].removeprefix("phase"))
        times.setdefault((phase, story["op"]), []).append(story["response_ns"])
    return times


def main():
    weir, recording, volume, size, backend, hosts = sys.argv[1:7]
    judged = int(sys.argv[7]) if len(sys.argv) > 7 else max(SHARES)
    requests = list(phased(explained(weir, recording), int(volume)))
    model = simulated(weir, os.path.dirname(hosts), requests, size, backend)
    status = 0
    print(f"{'':16} {'':>9} {'requests':>8}" + "".join(f" {f'p{share} ms':>9}{'off':>8}" for share in SHARES))
    for line in open(hosts):
        phase, op, depth, file = line.split()
        phase, depth = int(phase), int(depth)
        with open(file) as log:
            host = [int(row.split(",")[1]) for row in log][:-depth]
        gateway = [story["response_ns"] for one, story in requests if (one, story["op"]) == (phase, op)]
        due = [nearest_rank(model[phase, op], share) for share in SHARES]
        rows = {
            "model": (len(model[phase, op]), due),
            "gateway": (len(gateway), [nearest_rank(gateway, share) for share in SHARES]),
            "host": (len(host), [nearest_rank(host, share) for share in SHARES]),
        }
        for name, (count, times) in rows.items():
            off = [time / wanted - 1 for time, wanted in zip(times, due)]
            cells = "".join(f" {time / 1e6:9.3f}{100 * much:+7.1f}%" for time, much in zip(times, off))
            highest = judged if name == "host" else max(SHARES)
            misses = any(abs(much) > BOUND for share, much in zip(SHARES, off) if share <= highest)
            status = 4 if misses else status
            print(f"{f'{op}, depth {depth}':16} {name:>9} {count:8}{cells}{'  MISSES' if misses else ''}")
    sys.exit(status)


main()
