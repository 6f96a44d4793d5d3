"""Metrics against a load that counts itself, a real Prometheus' tools, and the rules and their tests.

page   promtool has no finding on the page of a loaded gateway; requests and bytes are exactly those of fio; the times by
       cause add up to the response times; both formats have the same samples
dashboard  a Prometheus scrapes a loaded gateway in both formats; each expression of the dashboard has data
rules  promtool accepts the alert rules, their tests pass, and every metric that a rule names is on a page or listed as
       one that this gateway cannot have
"""

import http.server
import json
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

from ..harness import fio
from ..harness.case import ROOT, Failed, case, ok, output, until
from ..harness.config import Config
from ..harness.gateway import Gateway

RULES = ROOT / "packaging" / "prometheus"
DASHBOARD = ROOT / "packaging" / "grafana" / "weir.json"
FORMATS = {"/metrics": ("text/plain; version=0.0.4", ()),
           "/open": ("application/openmetrics-text; version=1.0.0", ("--openmetrics",))}
SCRAPES = """
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: weir, metrics_path: /metrics, static_configs: [{targets: ["TARGET"]}]}
  - {job_name: open, metrics_path: /open, static_configs: [{targets: ["TARGET"]}]}
"""
# Families that the gateway of the case has no source for: it has no log and no upstream.
ABSENT = ("weir_log_", "weir_fence_state")
SAMPLE = re.compile(r'^([a-z_:]+)(?:\{(.*)\})? (\S+)$')


def page(gateway, *words):
    return output(gateway.weir, "metrics", "--socket", gateway.control, *words)


def samples(text):
    """Value by name and labels."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = SAMPLE.match(line)
            if not match:
                raise Failed(f"this is no sample: {line}")
            found[match[1], match[2] or ""] = match[3]
    return found


def checked(text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode or done.stderr.strip():
        raise Failed(f"promtool check metrics: status {done.returncode}: {done.stderr[-800:]}")


def nanoseconds(value):
    """Exact; the page has nine digits behind the point."""
    whole, rest = value.split(".")
    return int(whole) * 10**9 + int(rest)


@case("metrics.page", "the metrics of a loaded gateway are true, and well-formed for Prometheus", gate={"megabytes": 16},
      nightly={"megabytes": 1024}, area="serve", limit=120, tools=("promtool", "fio"))
def check_page(run, megabytes):
    config = Config().nbd("one", "two")
    for name in ("one", "two"):
        config.volume(name, file=run.folder / f"{name}.img", size="1GiB", io="buffered")
    gateway = Gateway(run, config.target("one"))
    gateway.start()
    counts = {}
    for name, kind, size in (("one", "randread", "4k"), ("two", "randwrite", "64k")):
        folder = run.fresh(f"fio.{name}")
        output(*fio.words(name, gateway.uri(name), rw=kind, bs=size, size="1g", io_size=f"{megabytes}m", iodepth=16),
               "--output-format=json", "--output=out", cwd=folder, seconds=110)
        job = fio.result(folder / "out")
        counts[name] = {"read": job["read"], "write": job["write"]}
    text = page(gateway)
    checked(text)
    found = samples(text)
    for name, kinds in counts.items():
        for op, told in kinds.items():
            requests = int(found["weir_volume_requests_total", f'volume="{name}",op="{op}",result="ok"'])
            bytes_ = int(found["weir_volume_io_bytes_total", f'volume="{name}",direction="{op}"'])
            if (requests, bytes_) != (told["total_ios"], told["io_bytes"]):
                raise Failed(f"{name}: {requests} {op}s of {bytes_} bytes; fio has {told['total_ios']} of {told['io_bytes']}")
    response = sum(nanoseconds(value) for (name, _), value in found.items() if name == "weir_request_duration_seconds_sum")
    causes = sum(nanoseconds(value) for (name, _), value in found.items() if name == "weir_stage_seconds_total")
    if response != causes or not response:
        raise Failed(f"the times by cause are {causes} ns, the response times {response} ns")
    opened = page(gateway, "--openmetrics")
    if set(samples(opened)) != set(found) or not opened.endswith("# EOF\n"):
        raise Failed(f"OpenMetrics has other samples: {set(samples(opened)) ^ set(found)}")
    named = set(re.findall(r"\b(?:weir|process)_[a-z_]+", (RULES / "weir.rules.yml").read_text(encoding="utf-8")))
    unknown = [name for name in sorted(named) if not name.startswith(ABSENT) and not any(name == have for have, _ in found)]
    # No tenant of this gateway has an objective, and nothing was found infeasible.
    if unknown != ["weir_control_infeasible"]:
        raise Failed(f"rules name metrics that are not on the page: {unknown}")
    gateway.stop()
    ok(f"{len(found)} series; {json.dumps({name: kinds['read']['total_ios'] + kinds['write']['total_ios'] for name, kinds in counts.items()})} "
       "requests are exact, and so are their times by cause")


class Pages(http.server.ThreadingHTTPServer):
    """Serves the pages of a gateway to Prometheus, in the format of the path."""

    def __init__(self, gateway):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                kind, words = FORMATS[self.path]
                text = page(gateway, *words).encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def overlap(one, other):
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h")))


@case("metrics.dashboard", "each expression of the dashboard has data while a gateway is loaded", nightly={"seconds": 30}, area="serve",
      limit=180, tools=("promtool", "prometheus", "fio"))
def check_dashboard(run, seconds):
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    places = [panel["gridPos"] for panel in panels]
    if len({panel["id"] for panel in panels}) != len(panels):
        raise Failed("two panels have the same id")
    if any(overlap(one, other) for index, one in enumerate(places) for other in places[:index]):
        raise Failed("panels overlap")
    config = Config().nbd("one", "two")
    config.add("tenant", name="db", objectives=[{"size": 4096, "iops": 100000, "p99": "1s"}])
    config.volume("one", file=run.folder / "one.img", size="1GiB", io="buffered", tenant="db")
    config.volume("two", file=run.folder / "two.img", size="1GiB", io="buffered", log=run.folder / "two.log")
    gateway = Gateway(run, config.target("one"))
    gateway.start()
    for name, kind, size in (("one", "randrw", "4k"), ("two", "randwrite", "64k")):
        folder = run.fresh(f"fio.{name}")
        run.spawn(*fio.words(name, gateway.uri(name), rw=kind, bs=size, size="1g", iodepth=4, rate_iops=500, time_based=True,
                             runtime=seconds + 60), cwd=folder, stdout=subprocess.DEVNULL)
    pages, folder, port = Pages(gateway), run.fresh("prometheus"), free_port()
    (folder / "prometheus.yml").write_text(SCRAPES.replace("TARGET", f"127.0.0.1:{pages.server_port}"), encoding="ascii")
    run.spawn("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
              f"--web.listen-address=127.0.0.1:{port}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(expression):
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=20) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.URLError:
            return []

    until(lambda: ask("count_over_time(weir_requests_total[1m]) > 15"), "15 scrapes", seconds=seconds + 60, every=1)
    if len(ask("up == 1")) != 2:
        raise Failed(f"Prometheus cannot read a format: {ask('up')}")
    empty = []
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    for expression in expressions:
        asked = re.sub(r"\$(instance|tenant|volume)", ".*", expression).replace("$__rate_interval", "15s")
        if not ask(asked):
            empty.append(asked)
    if empty:
        raise Failed(f"expressions without data: {empty}")
    gateway.stop()
    ok(f"{len(expressions)} expressions of {len(panels)} panels have data; Prometheus reads both formats")


@case("metrics.rules", "each alert fires in its scenario, and no other", gate={}, area="serve", limit=60, tools=("promtool",))
def check_rules(run):
    output("promtool", "check", "rules", RULES / "weir.rules.yml", cwd=run.folder)
    output("promtool", "test", "rules", "weir.rules.test.yml", cwd=RULES)
    ok("promtool accepts the rules, and their tests pass")
