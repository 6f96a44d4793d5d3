"""Response times of emulated flash, measured by hosts and by the gateway, compared with its model for the same requests.

The gateway records all requests; `weir explain` replays those of the volume on the same model, with the same arrival
times: this gives the model's distribution. The gateway's times, from arrival to the last byte of the reply, are from
the recording; the host's are fio's.
"""

import csv
import json
import math
import re

from ..harness import fio
from ..harness.case import Failed, Missed, attempt, case, ok, output
from ..harness.config import Config
from ..harness.gateway import Gateway

SHARES = (50, 90, 99)
BOUND = 0.1
# A host that measures several phases reads 3 * 512 bytes at offset 0 before each, and 5 * 512 bytes after it.
BEGINS, ENDS = 3 * 512, 5 * 512
# `weir explain` lists 100,000 requests, of which the paper's device does 26,667 a second.
EXPLAINED = 100_000
PAPER_SECONDS = 3
# The same device forty times slower, so that delays of the machine are a small part.
SLOWER = {"read": "2ms", "register": "4ms", "program": "36ms", "erase": "80ms"}


def explained(weir, what):
    """All requests of a recording or a plan, as `weir explain` lists them."""
    answer = json.loads(output(weir, "explain", what, "--slowest", EXPLAINED, "--json"))
    requests = answer["explanation"]["requests"]
    if len(requests) != answer["explanation"]["ended"]:
        raise Failed(f"{answer['explanation']['ended']} requests are more than `weir explain` lists, {len(requests)}")
    return sorted(requests, key=lambda one: one["arrived_ns"]), answer.get("tenants")


def phased(requests, volume):
    """The reads and writes of a volume, each with its phase; 0 is none. In a phase, only 4 KiB requests count."""
    marked = any(one["length"] == BEGINS for one in requests if one["op"] == "read")
    phase, number = (0, 0) if marked else (1, 1)
    for one in requests:
        if one["volume"] != volume or one["op"] not in ("read", "write"):
            continue
        here = phase
        if marked and one["op"] == "read" and one["offset"] == 0 and one["length"] in (BEGINS, ENDS):
            here = 0
            number += one["length"] == BEGINS
            phase = number if one["length"] == BEGINS else 0
        yield (here if one["length"] == 4096 else 0), one


def nearest_rank(times, share):
    return sorted(times)[max(math.ceil(len(times) * share / 100), 1) - 1]


def simulated(run, requests, size, backend):
    """The model's times, by phase and operation."""
    trace, plan = run.folder / "emulated.csv", run.folder / "plan.toml"
    with open(trace, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time_ns", "op", "dev", "offset", "size"])
        for phase, one in requests:
            rows.writerow([one["arrived_ns"], one["op"][0].upper(), phase, one["offset"], one["length"]])
    devices = {phase: {"volume": "disk", "tenant": f"phase{phase}"} for phase in sorted({phase for phase, _ in requests})}
    config = Config.plan().add("backend", **backend).volume(size=size).add("trace", file=trace, devices=devices)
    config.scalars["seed"] = 1
    plan.write_text(config.text())
    requests, tenants = explained(run.weir, plan)
    times = {}
    for one in requests:
        phase = int(tenants[one["tenant"]].removeprefix("phase"))
        times.setdefault((phase, one["op"]), []).append(one["response_ns"])
    return times


def compare(run, recording, size, backend, hosts, judged=max(SHARES)):
    """Prints a table; returns the cells that are more than 10 % off the model. `hosts` has (phase, op, depth, times in
    ns); their percentiles above `judged` are informational."""
    requests = list(phased(explained(run.weir, recording)[0], 0))
    model, missed = simulated(run, requests, size, backend), []
    print(f"{'':16} {'':>9} {'requests':>8}" + "".join(f" {f'p{share} ms':>9}{'off':>8}" for share in SHARES))
    for phase, op, depth, host in hosts:
        gateway = [one["response_ns"] for at, one in requests if (at, one["op"]) == (phase, op)]
        due = [nearest_rank(model[phase, op], share) for share in SHARES]
        for name, times in (("model", model[phase, op]), ("gateway", gateway), ("host", host)):
            ranks = [nearest_rank(times, share) for share in SHARES]
            off = [time / wanted - 1 for time, wanted in zip(ranks, due)]
            cells = "".join(f" {time / 1e6:9.3f}{100 * much:+7.1f}%" for time, much in zip(ranks, off))
            highest = judged if name == "host" else max(SHARES)
            if any(abs(much) > BOUND for share, much in zip(SHARES, off) if share <= highest):
                missed.append(f"{op} at depth {depth}, {name}")
            print(f"{f'{op}, depth {depth}':16} {name:>9} {len(times):8}{cells}")
    return missed


def fio_times(file, depth):
    """Latencies in fio's log, without the last ones: fio waits for these together and takes the time when all are complete."""
    with open(file, encoding="ascii") as log:
        return [int(row.split(",")[1]) for row in log][:-depth]


def gateway_of(run, memory, size, backend):
    """A gateway with one volume on the device, whose file and recording are in memory."""
    (memory / "disk.img").unlink(missing_ok=True)
    local = run.folder / "nbd.socket"
    config = Config(listen=[]).nbd("disk", unix=[local]).add("backend", **backend)
    config.volume(file=memory / "disk.img", size=size, backend=backend["name"], io="buffered")
    gateway = Gateway(run, config)
    # If permitted, the gateway gets real-time priority, so that other load does not affect the measurement.
    prefix = ("chrt", "--fifo", "1") if attempt("chrt", "--fifo", "1", "true")[0] == 0 else ()
    gateway.start(prefix=prefix, record=memory / "recording")
    return gateway, f"nbd+unix:///disk?socket={local}", prefix


def measured(run, memory, backend, op, depth, seconds):
    with open(memory / "disk.img", "wb") as file:
        file.truncate(256 << 20)
    gateway, uri, prefix = gateway_of(run, memory, "256MiB", backend)
    folder = run.fresh("fio")
    output(*prefix, *fio.words("load", uri, rw=f"rand{op}", bs="4k", size="256m", time_based=True, runtime=seconds, iodepth=depth,
                               norandommap=True, randrepeat=0, per_job_logs=0, write_lat_log="load", log_avg_msec=0), cwd=folder)
    gateway.stop()
    return compare(run, memory / "recording", "256MiB", backend, [(1, op, depth, fio_times(folder / "load_clat.log", depth))])


def model(run, op, depth, seconds):
    memory = run.memory()
    print("the paper's device: informational")
    measured(run, memory, {"name": "flash", "model": "ssd-paper"}, op, depth, PAPER_SECONDS)
    print("forty times slower")
    missed = measured(run, memory, {"name": "flash", "model": "ssd-paper", **SLOWER}, op, depth, seconds)
    if missed:
        raise Missed(f"more than 10 % off the model: {', '.join(missed)}")


for kind in ("read", "write"):
    for outstanding in (1, 16):
        case(f"emulated.{kind}{outstanding}", f"emulated flash has the response times of its model: {kind}s at depth {outstanding}",
             nightly={"op": kind, "depth": outstanding, "seconds": 8}, attempts=3, informational=True, tools=("fio",))(model)


@case("emulated.wear", "`weir status` shows the wear of emulated flash, and it matches the writes", gate={}, tools=("fio",), limit=120)
def wear(run):
    backend = {"name": "flash", "model": "ssd-nvme", "chips": 2, "blocks": 24, "pages": 64, "spare_permille": 450, "filled_permille": 1000}
    gateway, uri, _ = gateway_of(run, run.memory(), "4MiB", backend)
    output(*fio.words("wear", uri, rw="randwrite", bs="4k", size="4m", io_size="64m", iodepth=8, norandommap=True), cwd=run.fresh("fio"))
    print(re.sub("(?s)^.*?(?=^Modelled)", "", gateway.cli("status"), flags=re.M))
    flash = gateway.ask("status")["status"]["devices"][0]["flash"]
    gateway.stop()
    if flash["programs"] != 16384 or flash["erases"] <= 100 or not flash["moves"] or flash["amplification"] <= 1:
        raise Failed(f"the wear is not that of 16384 random writes: {flash}")
    if not flash["least_worn"] <= flash["most_worn"] <= flash["erases"]:
        raise Failed(f"the wear of blocks does not add up: {flash}")
    ok("16384 page writes cause as many programs, and erases and moves in addition")
