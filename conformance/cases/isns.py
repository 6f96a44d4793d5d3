"""Registration at an isnsd of open-isns, read back by an independent client.

registered  all objects have all attributes, follow reloads, outlive their period, and the portals go with the gateway
restarted   isnsd is killed and starts empty: all is registered again, also after a time in which it said nothing; I/O is
            not disturbed
silent      a server that accepts and says nothing, and one that is absent, delay neither the start nor the stop
"""

import re
import socket
import subprocess
import time

from ..harness import fio, isns
from ..harness.case import Failed, case, ok, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.isns import Client, Isnsd

ENTITY, GATEWAY = "site.example", "iqn.2026-11.org.example:g1"
ONE, TWO = "iqn.2026-11.org.example:one", "iqn.2026-11.org.example:two"

# A start or stop in seconds that waited for no server. It takes 2 s to leave one.
PROMPT = 10


def gateway(run, servers, **keys):
    config = Config().volume("disk", file=run.folder / "disk.img", size="64MiB").nbd()
    config.target(name=ONE, alias="first").target(name=TWO)
    keys = {"period": "20s", "esi": "5s", **keys}
    return Gateway(run, config.section("isns", servers=servers, entity=ENTITY, initiator_name=GATEWAY, **keys))


def state(one, server):
    found = [known for known in one.ask("status")["status"]["isns"] if known["server"] == server.address]
    return found[0] if found else {"state": "absent"}


def registered(one, server, seconds=20):
    until(lambda: state(one, server)["state"] == "registered", "the gateway is registered", seconds)


def entity(server):
    client = Client(server)
    try:
        return client.entity(ENTITY)
    finally:
        client.close()


def check(server, portals, targets):
    """What the server has must be these portals and targets with all their attributes."""
    found = entity(server)
    for portal in portals:
        have = found["portals"].get(portal, {})
        if not have.get(isns.SCN_PORT) or have.get(isns.ESI_PORT) != have[isns.SCN_PORT] or not have.get(isns.ESI_INTERVAL):
            raise Failed(f"the attributes of portal {portal}: {have}")
    nodes = {name: (1, alias) for name, alias in targets.items()}
    nodes[GATEWAY] = (2, f"weir {socket.gethostname()}")
    have = {name: (node.get(isns.TYPE), node.get(isns.ALIAS)) for name, node in found["nodes"].items()}
    groups = {(name, portal): {isns.GROUP_TAG: 1} for name in targets for portal in portals}
    have_groups = {key: group for key, group in found["groups"].items() if key[0] != GATEWAY}
    if (set(found["portals"]), have, have_groups) != (set(portals), nodes, groups):
        raise Failed(f"isnsd has {found}")
    ok(f"isnsd has {len(portals)} portals, {len(targets)} targets")


@case("isns.registered", "what hosts learn from an iSNS server is what the gateway serves", gate={"periods": 2},
      nightly={"periods": 6}, area="serve", limit=180, nightly_limit=400, tools=("isnsd", "isnsadm"))
def check_registered(run, periods):
    server = Isnsd(run, period="20s")
    server.start()
    one = gateway(run, [server.address])
    one.start()
    registered(one, server)
    check(server, one.portals, {ONE: "first", TWO: None})
    admin = run.folder / "isnsadm.conf"
    admin.write_text(f"HostName = localhost\nSourceName = {Client.name}\nServerAddress = {server.address}\n"
                     f"ControlSocket = {server.folder}/ctl\nSecurity = 0\n")
    said = subprocess.run(["isnsadm", "--config", admin, "--query", "iscsi-node-type=target"], capture_output=True, text=True,
                          timeout=60, check=False).stdout
    if not all(f'"{name}"' in said for name in (ONE, TWO)):
        raise Failed(f"isnsadm does not find the targets: {said}")
    ok("isnsadm finds both targets")
    one.config.change("target", TWO, alias="second")
    one.config.add("target", name=f"{ONE}.more", luns={0: "disk"})
    one.reload()
    until(lambda: len(entity(server)["nodes"]) == 4, "a new target is registered")
    check(server, one.portals, {ONE: "first", TWO: "second", f"{ONE}.more": None})
    one.config.tables = [table for table in one.config.tables if table[1]["name"] != ONE]
    one.reload()
    until(lambda: ONE not in entity(server)["nodes"], "a target that has gone is deregistered")
    end = time.monotonic() + 20 * periods
    while time.monotonic() < end:
        if set(entity(server)["portals"]) != set(one.portals):
            raise Failed(f"the registration expired: {entity(server)}")
        time.sleep(1)
    check(server, one.portals, {TWO: "second", f"{ONE}.more": None})
    # With the last portal that it inquires about isnsd removes the nodes, too: what the gateway leaves is seen without.
    one.config.section("isns", esi="0s")
    one.reload()
    until(lambda: not any(isns.ESI_PORT in portal for portal in entity(server)["portals"].values() or [{isns.ESI_PORT: 1}]),
          "the portals are registered again without ESI")
    registered(one, server)
    one.stop()
    until(lambda: not entity(server)["portals"], "the portals go with the gateway")
    # isnsd shows a node without a portal to its administrator alone.
    said = subprocess.run(["isnsadm", "--config", admin, "--local", "--list", "nodes"], capture_output=True, text=True,
                          timeout=60, check=False).stdout
    nodes = set(re.findall(r'iSCSI name = "(.*?)"', said)) - {Client.name}
    if nodes != {GATEWAY, TWO, f"{ONE}.more"}:
        raise Failed(f"a gateway that has left leaves {said}")
    ok("the portals go with the gateway, and the nodes stay")


@case("isns.restarted", "a restarted and empty iSNS server learns all again, and no host notices", gate={}, area="serve",
      limit=180, tools=("isnsd", "fio"))
def check_restarted(run):
    server = Isnsd(run)
    server.start()
    # The next check by itself would be after minutes: it is the end of the connection that is noticed.
    one = gateway(run, [server.address], period="10min", esi="1min")
    one.start()
    registered(one, server)
    words = fio.words("verified", one.uri(), rw="randwrite", bs="4k", size="32m", iodepth=8, verify="crc32c", verify_fatal=1,
                      time_based=1, runtime=40)
    load = run.spawn(*words, cwd=run.fresh("fio"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    server.kill()
    until(lambda: state(one, server)["state"] != "registered", "the gateway finds out that isnsd has gone")
    server.start()
    registered(one, server, 60)
    check(server, one.portals, {ONE: "first", TWO: None})
    server.pause()
    one.config.change("target", TWO, alias="second")
    one.reload()
    until(lambda: "does not answer" in state(one, server).get("problem", ""), "the gateway finds out that isnsd is silent", 40)
    server.resume()
    registered(one, server, 60)
    check(server, one.portals, {ONE: "first", TWO: "second"})
    said, _ = load.communicate(timeout=120)
    if load.returncode:
        raise Failed(f"fio has status {load.returncode}: {said[-800:].decode(errors='replace')}")
    failures = len(re.findall("it is tried again", one.said()))
    if failures > 12:
        raise Failed(f"the log has {failures} lines about failures")
    ok(f"I/O had no error, and the log has {failures} lines about failures")
    one.stop()


@case("isns.silent", "servers that are absent or silent delay neither the start, nor a reload, nor the stop", gate={},
      area="serve", limit=120, tools=("fio",))
def check_silent(run):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as gone:
        servers = [f"127.0.0.1:{one.getsockname()[1]}" for one in (silent, gone)]
        gone.close()
        one = gateway(run, servers)
        started = one.start()
        fio.verified(run, one.uri(), "beside silent servers", bs="4k", size="1m", iodepth=8)
        until(lambda: [known["problem"] for known in one.ask("status")["status"]["isns"] if known["problem"]],
              "the failure of a server is known")
        page = one.cli("metrics")
        for server in servers:
            if f'weir_isns_registered{{server="{server}"}} 0\n' not in page or server not in one.cli("status"):
                raise Failed(f"{server} is not in the metrics or the status")
        one.config.section("isns", servers=servers[:1])
        one.reload()
        until(lambda: len(one.ask("status")["status"]["isns"]) == 1, "a reload takes a server away")
        begin = time.monotonic()
        one.stop()
        stopped = time.monotonic() - begin
        if max(started, stopped) > PROMPT:
            raise Failed(f"beside silent servers the start takes {started:.1f} s, the stop {stopped:.1f} s")
        ok("a gateway starts, does I/O, is reloaded and stops beside silent servers")
