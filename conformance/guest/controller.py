#!/usr/bin/env python3
"""Runs a gateway, and lets somebody who cannot reach it by signals restart and change it.

    controller.py WEIR CONFIG LOG SOCKET

Starts `WEIR serve CONFIG`, prints the port on which it takes commands on the loopback address, and
ends, with the gateway, when its input is closed. One command per connection, one line each way:

    restart               SIGTERM, and another gateway with the same configuration
    crash                 the same with SIGKILL
    reload                SIGHUP
    resize VOLUME SIZE    gives the volume another size in the configuration, then SIGHUP
    dirty VOLUME          how many bytes of it are only in its log
    drain VOLUME          writes them all upstream
    log PATTERN           the last line of the log that matches, if any
"""

import json
import re
import signal
import socket
import subprocess
import sys
import threading

SECONDS = 20


class Gateway:
    def __init__(self, weir, config, log, control):
        self.weir, self.control = weir, control
        self.command, self.config, self.log = [weir, "serve", config, "--json"], config, log
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=open(self.log, "a"))
        json.loads(self.process.stdout.readline())

    def end(self, how):
        self.process.send_signal(how)
        status = self.process.wait(SECONDS)
        if how == signal.SIGTERM and status != 0:
            raise RuntimeError(f"the gateway left with status {status}")

    def obey(self, words):
        match words:
            case ["restart"]:
                self.end(signal.SIGTERM)
                self.start()
            case ["crash"]:
                self.end(signal.SIGKILL)
                self.start()
            case ["reload"]:
                self.process.send_signal(signal.SIGHUP)
            case ["resize", volume, size]:
                self.resize(volume, size)
                self.process.send_signal(signal.SIGHUP)
            case ["dirty", volume]:
                said = self.volume("status", volume, "--json")["volumes"]
                return str(next(one for one in said if one["name"] == volume)["log"]["dirty_bytes"])
            case ["drain", volume]:
                self.volume("drain", volume, "--json")
            case ["log", *pattern]:
                found = [line for line in open(self.log) if re.search(" ".join(pattern), line)]
                return found[-1].strip() if found else "no such line"
            case _:
                raise RuntimeError(f"no such command: {words}")
        return "done"

    def volume(self, *words):
        done = subprocess.run([self.weir, "volume", *words, "--socket", self.control], capture_output=True, text=True,
                              timeout=10 * SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"weir volume {' '.join(words)}: status {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout or "{}")

    def resize(self, volume, size):
        text = open(self.config).read()
        text, changed = re.subn(rf'(name = "{re.escape(volume)}"\n(?:[^\[\n]*\n)*?size = )"[^"]*"', rf'\1"{size}"', text)
        if changed != 1:
            raise RuntimeError(f"{changed} volumes are called {volume}")
        open(self.config, "w").write(text)


def main():
    gateway = Gateway(*sys.argv[1:5])
    door = socket.create_server(("127.0.0.1", 0))
    print(door.getsockname()[1], flush=True)

    def answer():
        while True:
            client, _ = door.accept()
            with client, client.makefile("rw") as lines:
                try:
                    lines.write(gateway.obey(lines.readline().split()) + "\n")
                except Exception as error:
                    lines.write(f"failed: {error}\n")

    threading.Thread(target=answer, daemon=True).start()
    sys.stdin.read()
    gateway.end(signal.SIGTERM)


main()
