"""Who stood in front: two hosts on one device, one of them noisy, on a gateway whose flight recorder nobody has started.

`noisy` keeps 32 reads outstanding, `victim` one, on a modelled device that executes one at a time. In nearly all slow
requests of the victim `weir slow` must name the noisy host as the neighbour and the rule that held the request; the log
line of one of them has the same id, and the address of its host. `weir top` over the whole load must count what fio
counts.
"""

import json
import threading
import time

from ..harness import fio
from ..harness.case import Failed, case, ok, output
from ..harness.config import Config
from ..harness.gateway import Gateway

DEPTH = {"victim": 1, "noisy": 32}
# The device takes 2 ms for a read, so a victim behind 32 others waits for some 60 ms.
SLOW_MS = 30
# Per cent by which `weir top` and fio may differ, and of slow requests that must name the neighbour.
TOP_PERCENT, NAMED_PERCENT = 2, 95
# Seconds that `weir top` begins before the load and ends after it.
AROUND = 2


@case("slow.neighbour", "`weir slow` names the neighbour of slow requests and their rule, and `weir top` counts as fio does",
      gate={"seconds": 4}, nightly={"seconds": 20}, area="serve", limit=90, tools=("fio",))
def neighbour(run, seconds):
    config = Config().nbd(*DEPTH).section("recorder", slow=f"{SLOW_MS}ms")
    config.add("backend", name="array", model="fixed", service="2ms", servers=1)
    for name in DEPTH:
        config.add("tenant", name=name)
        config.volume(name, file=run.folder / f"{name}.img", size="64MiB", io="buffered", backend="array")
    gateway = Gateway(run, config.target("victim"))
    gateway.start()
    results, length = {}, seconds + 2 * AROUND

    def load(name):
        folder = run.fresh(f"fio.{name}")
        output(*fio.words(name, gateway.uri(name), rw="randread", bs="4k", size="64m", time_based=True, runtime=seconds,
                          iodepth=DEPTH[name]), "--output-format=json", "--output=out", cwd=folder, seconds=seconds + 60)
        results[name] = fio.result(folder / "out")["read"]

    def top():
        results["top"] = json.loads(gateway.cli("top", "--once", "--json", "--interval", f"{length}s", seconds=length + 60))

    threads = [threading.Thread(target=top), *(threading.Thread(target=load, args=(name,)) for name in DEPTH)]
    for index, thread in enumerate(threads):
        thread.start()
        if index == 0:
            time.sleep(AROUND)
    for thread in threads:
        thread.join()
    if len(results) != 3:
        raise Failed(f"there are results of {sorted(results)} only")
    for row in results["top"]["tenants"]:
        counted, told = results[row["name"]]["total_ios"], row["requests_per_s"] * length
        print(f"{row['name']}: fio has {counted} reads, `weir top` {told:.0f}, held by {row['held_by']}")
        if abs(told - counted) * 100 > TOP_PERCENT * counted:
            raise Failed(f"`weir top` has {told:.0f} reads of {row['name']}, fio {counted}")

    slow = gateway.ask("slow", tenant="victim", last_ns=length * 10**9, limit=32)["slow"]
    told = slow["told"]
    if len(told) < 10 or any(one["response_ns"] < SLOW_MS * 10**6 or one["reason"] != "slow" for one in told):
        raise Failed(f"the slow requests of the victim are missing: {json.dumps(slow)[:800]}")
    longest = [max(one["waits"], key=lambda wait: wait["time_ns"]) for one in told]
    named = [one["mostly"]["who"] == "noisy" and wait["behind"][0]["who"] == "noisy" and
             wait["rule"] in ("dispatch/depth", "storage/device") for one, wait in zip(told, longest)]
    print(f"{sum(named)} of {len(told)} name the noisy host; rules {sorted({wait['rule'] for wait in longest})}")
    if sum(named) * 100 < NAMED_PERCENT * len(named):
        wrong = told[named.index(False)]
        raise Failed(f"{sum(named)} of {len(named)} slow requests name the noisy host; another one: {json.dumps(wrong)[:800]}")
    for one in told:
        if sum(wait["time_ns"] for wait in one["waits"]) != one["response_ns"]:
            raise Failed(f"the waits of {one['id']} do not add up to its response time")
    text = gateway.cli("slow", told[0]["id"])
    for part in (told[0]["id"], longest[0]["rule"], "tenant victim", "mostly noisy: "):
        if part not in text:
            raise Failed(f"`weir slow {told[0]['id']}` does not say {part!r}: {text}")
    # Lines are limited, so not each of them has one.
    lines = [line for line in gateway.said().splitlines() if "slow request" in line and 'tenant="victim"' in line]
    if not lines or not all(f"peer={told[0]['peer']} " in line and 'behind="noisy"' in line for line in lines[1:]):
        raise Failed(f"the log does not have the slow requests of {told[0]['peer']}: {lines[:2]}")
    if "NBD client" not in next((line for line in gateway.said().splitlines() if f"peer={told[0]['peer']}" in line), ""):
        raise Failed(f"no session in the log has the address {told[0]['peer']}")
    gateway.stop()
    ok(f"{sum(named)} of {len(told)} slow requests name the noisy host, and `weir top` agrees with fio")
