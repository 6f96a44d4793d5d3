"""A Linux kernel as initiator, in a virtual machine: the scripts in guest/ run there, in a single boot.

The folder that --guest names holds build.sh, which makes the machine once, and run.sh, which boots it with a script.
"""

import base64
import functools
import gzip
import http.server
import os
import pathlib
import re
import socketserver
import subprocess
import tarfile
import tempfile
import threading

from ..harness.case import ROOT, TARGET, Failed, attempt, case, output
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.proxy import Proxy
from ..harness.targets import Tgtd, free_ports
from . import emulated

# What a kernel logs about storage failures. No part may cause such a message, except where it uses reservations: the
# block layer calls a reservation conflict a nexus error. Missed timer ticks of the virtual machine are caused by the
# host.
COMPLAINTS = ("i/o error|critical [a-z]+ error|reservation conflict|rejecting i/o|timing out command|recovery timed out|offline|sense key"
              "|synchronize cache.*failed|(ext4|jbd2|xfs).*(error|warning|shut)|blocked for more|hung|call trace|corrupt|bug:|warning:")
TOLERATED = {
    "reservations": "reservation conflict|critical nexus error, dev sd",
    "nvme_reservations": "reservation conflict|critical nexus error, dev (sd|nvme)|nvme[0-9]+n[0-9]+: I/O Cmd.*sct 0x0 / sc 0x83",
    # The path of a command that was outstanding when the gateway crashed; the host sends it again.
    "nvme": "nvme[0-9]+c[0-9]+n[0-9]+: I/O Cmd.*sct 0x3 |I/O error, dev nvme[0-9]+c[0-9]+n",
}
# Time limits of one part and of all, in seconds, for a busy machine: the guest's processor is emulated.
PART_SECONDS, ALL_SECONDS = 480, 2400
# The guest sees the host's loopback as this address, so that is what discovery must advertise.
HOST = "10.0.2.2"
SUBSYSTEM = "nqn.2026-11.org.example:nvme"
RESERVED = "nqn.2026-11.org.example:reserved"
SCRIPTS = ROOT / "conformance/guest"
# Parts that run for a change of the front end or the wire formats. The others take as long again and protect less.
SMALL = ["ext4", "multipath", "restart", "reservations", "commands", "nvme", "nvme_reservations"]
PARTS = ["ext4", "multipath", "restart", "write_back", "reservations", "commands", "nvme", "nvme_reservations", "nvme_commands", "chap", "lio", "flash"]
# Slow enough that delays of the machine do not matter: reads take 150 ms, programs 250 ms.
FLASH = {"name": "flash", "model": "ssd-paper", "register": "25ms", "read": "125ms", "program": "225ms"}
# Parts of a script, as the guest gets them: text only.
FRAME = """
complaints() {{ dmesg --read-clear | grep -iE '{complaints}' | grep -vE "MP-BIOS bug|${{1:-^$}}"; }}
status=0
if complaints; then echo "the kernel complained while it booted"; status=1; fi
part() {{ # part NAME TOLERATED
  echo "--- $1"
  local start=$SECONDS
  if ! timeout -k 5 {seconds} bash -euo pipefail -c ". /tmp/common.part; . /tmp/$1.part"; then
    echo "=== $1 FAILED after $((SECONDS - start)) s"
    udevadm settle
    timeout 20 iscsiadm -m node --logout >/dev/null 2>&1
    dmesg --read-clear | tail -40
    status=1
  elif complaints "$2"; then
    echo "=== $1 FAILED: the kernel complained"
    status=1
  else
    echo "=== $1 passed in $((SECONDS - start)) s"
  fi
}}
"""


class Host:
    """The peers of the guest: a gateway on two ports, its upstream, and a gateway with emulated flash."""

    def __init__(self, run, flash):
        (*self.ports, self.nvme, self.nvme2), folder = free_ports(4), run.folder
        config = Config(listen=[f"127.0.0.1:{port}" for port in self.ports], advertise=[f"{HOST}:{port}" for port in self.ports])
        config.account("alice", secret="secretsecret12").account("weir", secret="mutualmutual12").section("cache", size="16MiB")
        config.section("discovery", accounts=["alice"], mutual="weir")
        for name, mib, keys in (("ext4", 128, {}), ("multipath", 384, {}), ("restart", 128, {}), ("reservations", 64, {}),
                                ("commands", 128, {}), ("chap", 64, {"accounts": ["alice"], "mutual": "weir"})):
            config.volume(name, file=folder / f"{name}.img", size=f"{mib}MiB").target(name, name=f"{TARGET}.{name}", **keys)
        config.section("nvme", listen=[f"127.0.0.1:{port}" for port in (self.nvme, self.nvme2)],
                       advertise=[f"{HOST}:{port}" for port in (self.nvme, self.nvme2)])
        config.volume("nvme", file=folder / "nvme.img", size="128MiB").add("subsystem", name=SUBSYSTEM, namespaces={1: "nvme"})
        config.volume("shared", file=folder / "shared.img", size="64MiB").target("shared", name=f"{TARGET}.shared")
        config.add("subsystem", name=RESERVED, namespaces={1: "shared"})
        # 320 MiB is the minimum of mkfs.xfs. The guest can reach both units without the gateway, as separate targets.
        images = {"ext4": run.image("cached-ext4.img", 128), "xfs": run.image("cached-xfs.img", 320)}
        target = Tgtd(run, images["ext4"])
        target.add(2, images["xfs"])
        self.far = target.portals[1].rpartition(":")[2]
        proxy = Proxy.start(run, target.portals[0])
        proxy("line", 0, 0, 0.01)
        for lun, (kind, image) in enumerate(images.items(), 1):
            config.add("upstream", name=f"far-{kind}", target=target.name, lun=lun, portals=proxy.portals)
            config.volume(f"cached-{kind}", upstream=f"far-{kind}", state=folder / f"{kind}.state", log=folder / f"{kind}.log", log_size="64MiB")
            config.target(f"cached-{kind}", name=f"{TARGET}.cached-{kind}")
            target.another(lun + 1, f"{TARGET}.alone-{kind}", image)
        self.gateway = Gateway(run, config)
        self.gateway.start()
        self.flash, self.recording = None, None
        if flash:
            memory = run.memory()
            self.recording = memory / "recording"
            slow = Config().add("backend", **FLASH).volume("flash", file=memory / "flash.img", size="64MiB", backend="flash")
            self.flash = Gateway(run, slow.target("flash", name=f"{TARGET}.flash"), "flash")
            self.flash.start(record=self.recording)

    def obey(self, words):
        """Executes a command of the guest; returns the answer."""
        gateway = self.gateway
        match words:
            case ["restart"]:
                gateway.restart()
            case ["crash"]:
                gateway.kill()
                gateway.start()
            case ["resize", volume, size]:
                gateway.config.change("volume", volume, size=size)
                gateway.reload()
            case ["dirty", volume]:
                return str(gateway.volume_log(volume)["dirty_bytes"])
            case ["drain", volume]:
                gateway.drain(volume, 200)
            case ["log", *pattern]:
                found = re.findall(f"^.*{' '.join(pattern)}.*$", gateway.said(), re.M)
                return found[-1] if found else "no such line"
            case _:
                raise Failed(f"no such order: {words}")
        return "done"


def serve(run, host):
    """Listens for the guest's commands; returns the port."""
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            try:
                answer = host.obey(self.rfile.readline().decode().split())
            except Exception as error:  # The guest reports it.
                answer = f"failed: {error}"
            self.wfile.write(answer.replace("\n", " / ").encode() + b"\n")

    return in_background(run, socketserver.TCPServer(("127.0.0.1", 0), Handler))


def in_background(run, server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    run.defer(server.shutdown)
    return server.server_address[1]


def files(run):
    """Serves the files that a part of the guest's script fetches: the gateway, and this package."""
    folder = run.fresh("files")
    output("strip", "-o", folder / "weir", run.weir)
    with tarfile.open(folder / "conformance.tar", "w") as tar:
        tar.add(ROOT / "conformance", "conformance", filter=lambda one: None if "__pycache__" in one.name else one)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    return in_background(run, http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)))


def script(run, variables, parts):
    lines = ["export " + " ".join(f"{name}={value}" for name, value in variables.items())]
    for part in ("common", *parts):
        lines += [f"cat >/tmp/{part}.part <<'END OF PART'", (SCRIPTS / f"{part}.sh").read_text(), "END OF PART"]
    lines.append(FRAME.format(complaints=COMPLAINTS, seconds=PART_SECONDS))
    lines += [f"part {part} '{TOLERATED.get(part, '')}'" for part in parts] + ["exit $status", ""]
    place = run.folder / "script.sh"
    place.write_text("\n".join(lines))
    return place


def drive(run, steps, cpus=2):
    """Boots the machine with a script; prints what that says, but what is for `measured`, and returns both."""
    machine, place = pathlib.Path(run.guest), pathlib.Path(os.environ.get("GUEST_DIR", "/var/tmp/weir-guest"))
    build(machine, place)
    process = run.spawn("bash", machine / "run.sh", steps, ALL_SECONDS, env={**os.environ, "GUEST_DIR": str(place), "GUEST_CPUS": str(cpus)},
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, measured = [], []
    for line in process.stdout:
        line = line.decode(errors="replace").rstrip()
        # The guest's measurements are input of the comparison below and not printed.
        if re.match("flash [1-4] ", line):
            measured.append(line.split())
        else:
            said.append(line)
            print(line, flush=True)
    process.wait(60)
    return said, measured


def faults(said, parts):
    """What went wrong in the guest."""
    wrong = [line for line in said if re.search("=== kernel:|=== .* FAILED", line)]
    if not any("=== guest exit 0" in line for line in said):
        wrong.append("the guest's script failed")
    return wrong + [f"{part} did not report that it passed" for part in parts if not any(f"=== {part} passed" in line for line in said)]


def build(machine, place):
    """Makes the virtual machine in `place` unless it is there.

    A build that was interrupted leaves half a machine, with /proc mounted in it. So each build has a folder and a mount
    namespace of its own, and its folder becomes `place` when it is complete.
    """
    if (place / "root.img").exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = pathlib.Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    status, said = attempt("unshare", "--mount", "bash", machine / "build.sh", seconds=600, env={**os.environ, "GUEST_DIR": str(fresh)})
    if status:
        raise Failed(f"the virtual machine cannot be built: {said[-800:]}")
    if place.exists():
        place.rename(fresh / "incomplete")
    fresh.rename(place)


@case("guest.boot", "a Linux initiator uses every feature without an error, and its kernel logs no complaint",
      gate={"parts": ["ext4", "multipath"]}, small={"parts": SMALL}, nightly={"parts": PARTS}, area="guest", guest=True, limit=900, nightly_limit=2700,
      tools=("qemu-system-x86_64", "tgtd", "tgtadm"))
def boot(run, parts):
    host = Host(run, "flash" in parts)
    variables = {"HOST": HOST, "PORT": host.ports[0], "PORT2": host.ports[1], "FAR": host.far, "CONTROL": serve(run, host),
                 "NVME": host.nvme, "NVME2": host.nvme2, "FILES": files(run), "PREFIX": TARGET,
                 "FLASH": host.flash.portals[0].rpartition(":")[2] if host.flash else ""}
    said, measured = drive(run, script(run, variables, parts))
    wrong = faults(said, parts)
    host.gateway.stop()
    if host.flash:
        host.flash.stop()
    if wrong:
        raise Failed("; ".join(wrong))
    if host.flash:
        flash(run, host, measured)


def flash(run, host, measured):
    """Informational, because the times include delays of the machine. The guest's processor is emulated: a delay of a
    few ticks determines the 99th percentile of some hundred requests."""
    if len(measured) != 4:
        raise Failed("the guest did not measure the emulated flash")
    hosts = []
    for _, phase, op, depth, packed in measured:
        log = run.folder / f"fio.{phase}.log"
        log.write_bytes(gzip.decompress(base64.b64decode(packed)))
        hosts.append((int(phase), op, int(depth), emulated.fio_times(log, int(depth))))
    missed = emulated.compare(run, host.recording, "64MiB", FLASH, hosts, judged=90)
    print(f"informational: more than 10 % off the model: {', '.join(missed) or 'nothing'}")
