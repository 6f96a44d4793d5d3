"""TCP proxies that can be made slow, frozen or dead while they run: the paths to a target.

    python3 -m conformance.harness.proxy SOCKET HOST:PORT [HOST:PORT...]

listens on a free port of the loopback address for each HOST:PORT and prints the ports on one line. Orders come
over the Unix socket SOCKET, one a line, and each is answered with one line of JSON. `Proxy` starts that and sends orders.

    line PATH RATE DELAY   bytes per second (0: no limit) and seconds of delay, each way
    freeze PATH            takes connections and bytes, passes none on and keeps what came
    mute PATH              the same for what comes from the target alone: it works, and its answers are kept
    kill PATH              resets its connections, forgets what they carried, refuses new ones
    up PATH                works again; a frozen path delivers what it has kept, late as it is
    to PATH HOST:PORT      new connections lead there
    counts                 for each path: connections so far and now, bytes so far each way
    timeline               for each path: [tenth, up in, up out, down in, down out] for every tenth of
                           a second of CLOCK_MONOTONIC in which bytes came in or went out

`Up` is from the client to the target. A frozen path delivers even what a client sent that has long given
the connection up: that is what a switch does that comes back to life.
"""

import collections
import json
import os
import pathlib
import selectors
import socket
import struct
import subprocess
import sys
import time

# Maximum buffered bytes of one direction of a connection; more stays in the sender's socket.
KEPT_MAX = 32 << 20
# Bytes read at once, and bytes forwarded at once where the rate is limited.
READ, PIECE = 256 << 10, 4 << 10
# Burst of a limited direction that was idle, in seconds.
SLACK = 0.005
UP, DOWN = 0, 1


# Columns of the time line: bytes from the client and from the target.
FROM_CLIENT, FROM_TARGET = 1, 3


class Proxy:
    """Commands for a server of proxies; see above."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.answers, self.portals = self.socket.makefile(), []

    @classmethod
    def start(cls, run, *targets):
        """Runs in a separate process, so that load here does not slow it down."""
        place = run.fresh("proxy") / "socket"
        process = run.spawn(sys.executable, "-m", __name__, place, *targets, stdout=subprocess.PIPE, text=True,
                            cwd=pathlib.Path(__file__).parents[2], env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        ports = process.stdout.readline().split()
        self = cls(place)
        self.portals = [f"127.0.0.1:{port}" for port in ports]
        return self

    def __call__(self, *order):
        self.socket.sendall((" ".join(map(str, order)) + "\n").encode())
        return json.loads(self.answers.readline())

    def bytes_of(self, path, since, until, columns=(FROM_CLIENT, FROM_TARGET)):
        """Bytes in each tenth of a second of that time."""
        rows = {row[0]: row for row in self("timeline")[path]}
        return [sum(rows[tenth][column] for column in columns) if tenth in rows else 0
                for tenth in range(int(since * 10) + 1, int(until * 10))]


def reset(one):
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    one.close()


class Flow:
    """One direction of a connection: bytes from `source` that are due at `sink`."""

    def __init__(self, direction, source, sink):
        self.direction, self.source, self.sink = direction, source, sink
        self.kept, self.bytes, self.ended, self.blocked = collections.deque(), 0, False, False


class Path:
    def __init__(self, to):
        host, port = to.rsplit(":", 1)
        self.to, self.rate, self.delay, self.state = (host, int(port)), 0, 0.0, "up"
        self.free = [0.0, 0.0]
        self.pairs, self.connections, self.timeline = [], 0, {}
        # Never listens: it reserves the port while the listener is closed.
        self.holder = socket.socket()
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.holder.bind(("127.0.0.1", 0))
        self.port, self.listener = self.holder.getsockname()[1], None

    def count(self, slot, bytes_):
        tenth = int(time.monotonic() * 10)
        self.timeline.setdefault(tenth, [0, 0, 0, 0])[slot] += bytes_


class Server:
    def __init__(self, control, targets):
        self.selector = selectors.DefaultSelector()
        self.paths = [Path(to) for to in targets]
        self.control = socket.socket(socket.AF_UNIX)
        self.control.bind(control)
        self.control.listen()
        self.control.setblocking(False)
        self.selector.register(self.control, selectors.EVENT_READ, ("control", None))
        for path in self.paths:
            self.listen(path)

    def listen(self, path):
        path.listener = socket.socket()
        path.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        path.listener.bind(("127.0.0.1", path.port))
        path.listener.listen(64)
        path.listener.setblocking(False)
        self.selector.register(path.listener, selectors.EVENT_READ, ("listener", path))

    def run(self):
        while True:
            now = time.monotonic()
            wake = None
            for path in self.paths:
                for pair in list(path.pairs):
                    due = self.pump(path, pair, now)
                    if due is not None:
                        wake = due if wake is None else min(wake, due)
            timeout = None if wake is None else max(0.0, wake - time.monotonic())
            for key, _ in self.selector.select(timeout):
                kind, what = key.data
                getattr(self, "on_" + kind)(key.fileobj, what)

    # --- connections

    def on_listener(self, listener, path):
        try:
            client, _ = listener.accept()
        except OSError:
            return
        path.connections += 1
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = {"client": client, "target": None, "mask": {}}
        pair["flows"] = [Flow(UP, client, None), Flow(DOWN, None, client)]
        path.pairs.append(pair)
        if path.state in ("up", "mute"):
            self.connect(path, pair)

    def connect(self, path, pair):
        try:
            target = socket.create_connection(path.to, timeout=5)
        except OSError:
            self.drop(path, pair)
            return
        target.setblocking(False)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair["target"] = target
        pair["flows"][UP].sink = pair["flows"][DOWN].source = target

    def drop(self, path, pair, close=reset):
        if pair in path.pairs:
            path.pairs.remove(pair)
            for one in (pair["client"], pair["target"]):
                if one is not None:
                    if pair["mask"].get(one):
                        self.selector.unregister(one)
                    close(one)

    def want(self, path, pair):
        """Registers the events that this pair waits for."""
        for one in (pair["client"], pair["target"]):
            if one is None:
                continue
            mask = 0
            for flow in pair["flows"]:
                if flow.source is one and not flow.ended and flow.bytes < KEPT_MAX:
                    mask |= selectors.EVENT_READ
                if flow.sink is one and flow.blocked:
                    mask |= selectors.EVENT_WRITE
            known = pair["mask"].get(one, 0)
            if mask == known:
                continue
            pair["mask"][one] = mask
            if not known:
                self.selector.register(one, mask, ("pair", (path, pair)))
            elif mask:
                self.selector.modify(one, mask, ("pair", (path, pair)))
            else:
                self.selector.unregister(one)

    def on_pair(self, one, what):
        path, pair = what
        for flow in pair["flows"]:
            if flow.sink is one:
                flow.blocked = False
            if flow.source is one and not flow.ended and flow.bytes < KEPT_MAX:
                self.read(path, flow)

    def read(self, path, flow):
        try:
            data = flow.source.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            flow.ended = True
            return
        path.count(2 * flow.direction, len(data))
        flow.kept.append((time.monotonic() + path.delay, memoryview(data)))
        flow.bytes += len(data)

    def pump(self, path, pair, now):
        """Forwards data that is due; returns the time of the next due data, if there is any."""
        if path.state not in ("up", "mute"):
            self.want(path, pair)
            return None
        if pair["target"] is None:
            self.connect(path, pair)
        wake = None
        for flow in pair["flows"]:
            if flow.direction == DOWN and path.state == "mute":
                continue
            try:
                due = self.forward(path, flow, now)
            except OSError:
                self.drop(path, pair)
                return None
            if due is not None:
                wake = due if wake is None else min(wake, due)
            if flow.ended and not flow.kept:
                # A half-closed connection is useless here. Forwarded data must arrive.
                self.drop(path, pair, socket.socket.close)
                return None
        self.want(path, pair)
        return wake

    def forward(self, path, flow, now):
        while flow.kept and not flow.blocked:
            due, data = flow.kept[0]
            if path.rate:
                due = max(due, path.free[flow.direction])
            if due > now:
                return due
            piece = data[:PIECE] if path.rate else data
            try:
                sent = flow.sink.send(piece)
            except BlockingIOError:
                flow.blocked = True
                return None
            path.count(2 * flow.direction + 1, sent)
            flow.bytes -= sent
            if path.rate:
                path.free[flow.direction] = max(path.free[flow.direction], now - SLACK) + sent / path.rate
            if sent == len(data):
                flow.kept.popleft()
            else:
                flow.kept[0] = (flow.kept[0][0], data[sent:])
        return None

    # --- commands

    def on_control(self, control, _):
        one, _ = control.accept()
        self.selector.register(one, selectors.EVENT_READ, ("order", None))

    def on_order(self, one, _):
        line = one.recv(4096)
        if not line:
            self.selector.unregister(one)
            one.close()
            return
        for order in line.decode().splitlines():
            one.sendall(json.dumps(self.obey(order.split())).encode() + b"\n")

    def obey(self, words):
        if words == ["counts"]:
            return [{"connections": path.connections, "open": len(path.pairs), "state": path.state,
                     "up": sum(row[1] for row in path.timeline.values()),
                     "down": sum(row[3] for row in path.timeline.values())} for path in self.paths]
        if words == ["timeline"]:
            return [[[tenth, *row] for tenth, row in sorted(path.timeline.items())] for path in self.paths]
        path = self.paths[int(words[1])]
        if words[0] == "line":
            path.rate, path.delay = float(words[2]), float(words[3])
        elif words[0] == "to":
            host, port = words[2].rsplit(":", 1)
            path.to = (host, int(port))
        elif words[0] == "kill":
            path.state = "dead"
            if path.listener:
                self.selector.unregister(path.listener)
                path.listener.close()
                path.listener = None
            for pair in list(path.pairs):
                self.drop(path, pair)
        else:
            path.state = {"up": "up", "freeze": "frozen", "mute": "mute"}[words[0]]
            if path.listener is None:
                self.listen(path)
        return time.monotonic()


def main():
    server = Server(sys.argv[1], sys.argv[2:])
    print(*(path.port for path in server.paths), flush=True)
    server.run()


if __name__ == "__main__":
    main()
