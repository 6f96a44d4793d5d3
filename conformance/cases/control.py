"""Contracts and caps with third-party initiators, and contracts in `weir sim` beside them.

caps: a volume with a cap of 500 requests per second completes 500 in each second, one with a cap of 1 completes 1.

contracts: one modelled array, which takes its time in real time. `w1`, fio over NBD, keeps to its contract; `w2`,
libiscsi over iSCSI, goes over it, as fast as its outstanding requests let it. Under `ta3` and `slack` w1 must keep its
p99, under `open` it must lose it, and the simulator must have predicted it. The array and all rates are a quarter of
the paper's interval 3 (two disks instead of eight), so that a small machine carries them; the load on each disk is the
same. A quarter of the array shows its load in a quarter of the endings, so `ta3` learns of it later, and has the
paper's lowest thresholds, 75 and 70 %. The paper's w2 always sends at its rate; a host waits once its queue
is full, here and in the plan.
"""

import json
import math
import threading

from ..harness import fio
from ..harness.case import Failed, Missed, case, ok, output
from ..harness.config import Config
from ..harness.gateway import Gateway

# Milliseconds of w1's p99, and per cent by which its mean and p99 may be off the simulated ones.
OBJECTIVE_MS, MEAN_PERCENT, P99_PERCENT = 41, 5, 10
# Requests per second of w1, requests that w2 keeps outstanding, and seconds of warm-up.
RATE, DEPTH, WARM_UP = 500, 64, 5
# fio waits for all requests of a job before it sleeps until the next is due, so one job with a deep queue sends
# bursts. Many slow jobs with one request each form a Poisson process together.
JOBS = 250
# Name, requests per second, and allowed deviation per second: a cap of one is exact.
CAPS = [("five", 500, 5), ("one", 1, 0)]


def requests_of(recording, run, tenant):
    """Arrival and completion of each request of a tenant, in seconds from its first, as the gateway recorded them."""
    said = json.loads(output(run.weir, "explain", recording, "--slowest", 100_000, "--json"))["explanation"]
    if said["ended"] > len(said["requests"]):
        raise Failed("more requests were recorded than `weir explain` lists")
    rows = sorted((one["arrived_ns"], one["response_ns"]) for one in said["requests"] if one["tenant"] == tenant)
    return [((came - rows[0][0]) / 1e9, (came + took - rows[0][0]) / 1e9) for came, took in rows]


def requests_of_fio(log):
    """The same as fio measured them, from its start; it reports completions in milliseconds."""
    with open(log, encoding="ascii") as rows:
        rows = [line.split(",") for line in rows]
    return sorted((int(row[0]) / 1e3 - int(row[1]) / 1e9, int(row[0]) / 1e3) for row in rows)


def fio_on(run, uri, name, seconds, **keys):
    """Random reads of 4 KiB; the log of their latencies."""
    folder = run.fresh(f"fio.{name}")
    output(*fio.words(name, uri, rw="randread", norandommap=True, randrepeat=0, bs="4k", size="1g", time_based=True, runtime=seconds,
                      per_job_logs=0, write_lat_log=name, log_avg_msec=0, **keys), cwd=folder, seconds=seconds + 60)
    return folder / f"{name}_clat.log"


def volume(config, run, name, **keys):
    return config.volume(name, file=run.folder / f"{name}.img", size="1GiB", io="buffered", **keys)


def caps(run, whole):
    """With `whole`, checks all seconds together, which tolerates delays of the machine; otherwise each second."""
    local, recording, logs = run.folder / "nbd.socket", run.folder / "recording", {}
    config = Config().nbd("five", "one", unix=[local])
    for name, cap, _ in CAPS:
        volume(config, run, name, cap_iops=cap)
    gateway = Gateway(run, config.target("five"))
    gateway.start(record=recording)

    def load(name, depth):
        logs[name] = fio_on(run, f"nbd+unix:///{name}?socket={local}", name, 12, iodepth=depth)

    threads = [threading.Thread(target=load, args=pair) for pair in (("five", 64), ("one", 4))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    gateway.stop()
    faults = []
    for tenant, (name, cap, slack) in enumerate(CAPS):
        if name not in logs:
            raise Failed(f"fio failed on {name}")
        for where, requests in (("gateway", requests_of(recording, run, tenant)), ("host", requests_of_fio(logs[name]))):
            ends = sorted(ended for _, ended in requests)
            # The first second has the burst that a cap allows, and fio stops in the last. Windows of the cap of one
            # begin half-way between two requests, so that no request is on a boundary.
            begin, step, seconds = ends[0] + (1 if cap > 1 else 0.5), 0.1 if cap > 1 else 1, 9
            if whole:
                step = seconds
            length = seconds if whole else 1
            counts = [sum(at <= end < at + length for end in ends)
                      for at in (begin + step * index for index in range(round(9 / step)))]
            least, most = cap * length - slack * length, cap * length + slack * length
            print(f"a cap of {cap}, at the {where}: {min(counts)} to {max(counts)} requests ended in {length} s, {least} to {most} wanted")
            if min(counts) < least or max(counts) > most:
                faults.append(f"a cap of {cap}, at the {where}: {min(counts)} to {max(counts)} in {length} s")
    if faults:
        raise (Failed if whole else Missed)("; ".join(faults))
    ok("each cap allows exactly its rate")


case("control.caps", "a cap on requests limits a volume to its rate over nine seconds", gate={"whole": True},
     alone=True, tools=("fio",), limit=120)(caps)
case("control.caps_each_second", "a cap on requests limits a volume to its rate in every second", nightly={"whole": False},
     attempts=3, alone=True, tools=("fio",), limit=120)(caps)


def common(config, policy):
    """The common part of the gateway's configuration and the plan. The command window of a connection is its share of
    all requests; w2's must be larger than its depth."""
    control = {"name": "ta3", "hwm": 75, "lwm": 70} if policy == "ta3" else policy
    config.section("limits", max_requests=32768).section("policy", control=control, dispatch={"name": "fifo", "depth": 4096})
    for name, iops in (("w1", 875), ("w2", 375)):
        config.add("tenant", name=name, objectives=[{"size": "4KiB", "iops": iops, "p99": f"{OBJECTIVE_MS}ms"}])
    return config.add("backend", name="array", disks=2, buses=1, links=1)


def simulated(run, policy):
    """Mean and p99 of w1 in milliseconds. The plan runs ten times as long as the hosts, so its results are the average
    of such runs."""
    config = common(Config.plan(), policy).section("run", duration="310s", warm_up="10s")
    config.volume("w1", size="1GiB").volume("w2", size="1GiB")
    config.add("workload", name="w1", volume="w1", arrivals="poisson", rate=f"{RATE}/s", size="4KiB")
    config.add("workload", name="w2", volume="w2", arrivals="closed", depth=DEPTH, size="4KiB")
    plan = run.folder / "plan.toml"
    plan.write_text(config.text())
    results = run.simulate(plan)
    response = next(one for one in results["tenants"] if one["name"] == "w1")["response"]
    return response["mean_ns"] / 1e6, response["p99_ns"] / 1e6


def contract(run, policy, seconds):
    local, recording, expected = run.folder / "nbd.socket", run.folder / "recording", simulated(run, policy)
    config = common(Config().nbd("w1", unix=[local]), policy)
    for name in ("w1", "w2"):
        volume(config, run, name, backend="array")
    gateway = Gateway(run, config.target("w2"))
    gateway.start(record=recording)
    total = WARM_UP + seconds
    other = run.spawn("iscsi-perf", "-r", "-m", DEPTH, "-b", 8, "-t", total + 4, gateway.url(),
                      stdout=open(run.folder / "w2", "wb"))
    log = fio_on(run, f"nbd+unix:///w1?socket={local}", "w1", total, numjobs=JOBS, iodepth=1, rate_iops=RATE // JOBS, rate_process="poisson")
    if other.wait(60):
        raise Failed(f"iscsi-perf left with status {other.returncode}")
    gateway.stop()
    at_gateway, at_host = measure(requests_of(recording, run, 0), total), measure(requests_of_fio(log), total)
    off = [100 * (live / sim - 1) for live, sim in zip(at_gateway, expected)]
    for index, what in enumerate(("mean", "p99")):
        print(f"w1 under {policy}, {what}: simulated {expected[index]:.2f} ms, gateway {at_gateway[index]:.2f} ms ({off[index]:+.1f} %), "
              f"host {at_host[index]:.2f} ms")
    faults = []
    if policy == "open" and min(at_gateway[1], at_host[1]) <= OBJECTIVE_MS:
        faults.append("w1 meets its p99 without control")
    if policy != "open" and max(at_gateway[1], at_host[1]) > OBJECTIVE_MS:
        faults.append("w1 loses its p99")
    if abs(off[0]) > MEAN_PERCENT or abs(off[1]) > P99_PERCENT:
        faults.append("mean or p99 differs from the simulation")
    if faults:
        raise Missed("; ".join(faults))


def measure(requests, total):
    """Mean and p99 in milliseconds of the requests that arrived after the warm-up."""
    times = sorted(1e3 * (ended - came) for came, ended in requests if WARM_UP <= came < total)
    return sum(times) / len(times), times[math.ceil(0.99 * len(times)) - 1]


for chosen in ("open", "ta3", "slack"):
    case(f"control.contract_{chosen}", f"under `{chosen}` a contract is met or missed as the simulator predicts",
         nightly={"policy": chosen, "seconds": 30}, attempts=3, informational=True, tools=("fio", "iscsi-perf"))(contract)
