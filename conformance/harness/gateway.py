"""One gateway: configures, starts, kills, queries and stops it."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

from .case import TARGET, Failed, output

# Time limit of a graceful stop and of an answer on the control socket, in seconds.
PATIENCE = 60


class Gateway:
    """A gateway with a folder for its configuration, log and control socket."""

    def __init__(self, run, config, name="weir"):
        before = sum(one.name == name for one in run.gateways)
        self.weir, self.name, self.config = run.weir, name, config
        self.folder = run.fresh(f"{name}.{before}" if before else name)
        self.file, self.log = self.folder / "weir.toml", self.folder / "log"
        self.control = self.folder / "control.socket"
        self.log.touch()
        self.process, self.ready, self.before_kill = None, {}, None
        config.section("control", socket=self.control)
        run.gateways.append(self)
        run.defer(self.end)

    def write(self):
        with open(self.file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(self.config.text())

    def start(self, *words, prefix=(), patience=PATIENCE, kill_after=None, record=None):
        """Starts it; returns the seconds until it serves, or None if it is killed before, after `kill_after`."""
        self.write()
        begin = time.monotonic()
        record = ["--record", str(record)] if record else []
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*prefix, self.weir, "serve", str(self.file), "--json", *record, *words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, cwd=self.folder)
        if kill_after is not None:
            time.sleep(kill_after)
            self.kill()
            return None
        said, _, _ = select.select([self.process.stdout], [], [], patience)
        line = self.process.stdout.readline() if said else b""
        if not line:
            why = f"left with status {self.process.wait(PATIENCE)}" if said else f"is not ready after {patience} s"
            raise Failed(f"the gateway {why}: {self.tail(5)}")
        self.ready = json.loads(line)
        return time.monotonic() - begin

    @property
    def pid(self):
        return self.process.pid

    @property
    def portals(self):
        return self.ready["portals"]

    @property
    def nbd(self):
        """HOST:PORT of NBD over TCP."""
        return next(uri.split("/")[2] for uri in self.ready["nbd"] if uri.startswith(("nbd://", "nbds://")))

    def url(self, target=TARGET, lun=0, portal=0):
        return f"iscsi://{self.portals[portal]}/{target}/{lun}"

    def uri(self, export="disk"):
        return f"nbd://{self.nbd}/{export}"

    def restart(self):
        self.stop()
        return self.start()

    def reload(self):
        self.write()
        self.process.send_signal(signal.SIGHUP)

    def kill(self):
        """SIGKILL. `before_kill` is called when the gateway is frozen and its files are still open."""
        if self.before_kill:
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            self.before_kill()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def kill_after(self, seconds):
        """In the background. Returns a thread to join."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        return timer

    def stop(self, lost=()):
        """SIGTERM; it must leave cleanly, or report that the last writes of the volumes `lost`, and of no other, may be lost."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        reported = re.findall("volume `(.*?)` could not be flushed at the end", self.said())
        if status != (1 if lost else 0) or sorted(reported) != sorted(lost):
            raise Failed(f"the gateway left with status {status}: {self.tail(5)}")

    def end(self):
        """Kills it if it runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def alive(self):
        return self.process.poll() is None

    def said(self):
        """The log as a whole."""
        return self.log.read_text(errors="replace")

    def tail(self, lines):
        return "\n".join(self.said().splitlines()[-lines:])

    def ask(self, do, **fields):
        """The answer of the control socket."""
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE)
            one.connect(str(self.control))
            one.sendall(json.dumps({"version": 1, "do": do, **fields}).encode() + b"\n")
            with one.makefile() as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise Failed(f"{do}: {answer['error']}")
        return answer

    def cli(self, *words, seconds=PATIENCE):
        """The output of `weir WORDS --socket ...`."""
        return output(self.weir, *words, "--socket", self.control, seconds=seconds)

    def volume(self, name="disk"):
        return next(one for one in self.ask("volume.list")["volumes"] if one["name"] == name)

    def volume_log(self, name="disk"):
        """State of a volume's write-back log."""
        return self.volume(name)["log"]

    def drain(self, name="disk", seconds=300):
        """Drains the log; returns the duration."""
        begin = time.monotonic()
        self.cli("volume", "drain", name, seconds=seconds)
        return time.monotonic() - begin

    def resident(self):
        """Memory in KiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        raise Failed("the gateway is gone")

    def cpu(self):
        """Processor time so far, in seconds."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
