"""A gateway that is started, killed and asked, and the proxy that its upstream is behind."""

import json
import os
import signal
import socket
import subprocess
import threading
import time

from iscsi import Broken

# A start, or an orderly end, that takes longer has failed, in seconds.
SECONDS = 60


class Gateway:
    def __init__(self, options):
        self.weir, self.config, self.log, self.control = options.weir, options.config, options.log, options.control
        self.target = options.target
        self.process, self.url, self.before_kill = None, None, None

    def start(self, kill_after=None):
        """Seconds until it serves; None if it is killed before, which it is after `kill_after`."""
        begin = time.monotonic()
        self.process = subprocess.Popen([self.weir, "serve", self.config, "--json"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=open(self.log, "a"))
        if kill_after is not None:
            time.sleep(kill_after)
            self.kill()
            return None
        line = self.process.stdout.readline()
        took = time.monotonic() - begin
        if not line:
            raise Broken(f"the gateway does not start, status {self.process.wait(SECONDS)}: {self.last_words()}")
        ready = json.loads(line)
        self.url = f"iscsi://{ready['portals'][0]}/{self.target}/0"
        return took

    def kill(self):
        """`before_kill` is called when it does nothing any more, and its files are still open."""
        if self.before_kill:
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            self.before_kill()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)

    def kill_after(self, seconds):
        """Whatever the caller does then. Returns a thread to wait for."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        return timer

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(SECONDS)
        if status:
            raise Broken(f"the gateway left with status {status}: {self.last_words()}")

    def last_words(self):
        with open(self.log, errors="replace") as log:
            return " / ".join(line.strip() for line in log.readlines()[-5:])

    def panicked(self):
        with open(self.log, errors="replace") as log:
            return any("panicked" in line for line in log)

    def ask(self, do, **fields):
        """What the control socket answers."""
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(SECONDS)
            one.connect(self.control)
            one.sendall(json.dumps({"version": 1, "do": do, **fields}).encode() + b"\n")
            with one.makefile() as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise Broken(f"{do}: {answer['error']}")
        return answer

    def volume_log(self):
        """How the log of the only volume does."""
        return self.ask("volume.list")["volumes"][0]["log"]

    def drain(self, seconds):
        """Everything goes upstream; how long that took."""
        begin = time.monotonic()
        done = subprocess.run([self.weir, "volume", "drain", "disk", "--socket", self.control], capture_output=True,
                              text=True, timeout=seconds, check=False)
        if done.returncode:
            raise Broken(f"weir volume drain: status {done.returncode}: {done.stderr.strip()}")
        return time.monotonic() - begin


class Proxy:
    """Orders for path/proxy.py."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile()

    def __call__(self, *order):
        self.socket.sendall((" ".join(map(str, order)) + "\n").encode())
        return json.loads(self.answers.readline())


class Target:
    """The tgtd that target.sh has started."""

    def __init__(self, work):
        self.work = work

    def told(self):
        with open(os.path.join(self.work, "target")) as file:
            process, portal = file.read().split()
        return int(process), portal

    def kill(self):
        os.kill(self.told()[0], signal.SIGKILL)

    def start(self):
        """Another one; its portal."""
        script = os.path.join(os.path.dirname(__file__), "target.sh")
        subprocess.run(["bash", script], check=True, timeout=SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return self.told()[1]
