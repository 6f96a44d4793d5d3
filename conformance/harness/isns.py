"""An isnsd of open-isns, and an iSNS client that shares no code with the gateway (RFC 4171, section 5)."""

import os
import signal
import socket
import struct

from .case import Failed, end, until
from .targets import answers, free_ports

REGISTER, QUERY = 1, 2
ENTITY, PROTOCOL, PERIOD, ADDRESS, PORT, ESI_INTERVAL, ESI_PORT, SCN_PORT = 1, 2, 6, 16, 17, 19, 20, 23
NAME, TYPE, ALIAS, GROUP_NAME, GROUP_ADDRESS, GROUP_PORT, GROUP_TAG = 32, 33, 34, 48, 49, 50, 51
TEXTS = (ENTITY, NAME, ALIAS, GROUP_NAME)

CONFIGURATION = """HostName = localhost
SourceName = iqn.2026-11.org.example:isns
Database = {folder}/db
BindAddress = 127.0.0.1:{port}
ControlSocket = {folder}/ctl
PIDFile = {folder}/pid
RegistrationPeriod = {period}
DefaultDiscoveryDomain = 1
Security = 0
SLPRegister = 0
ESIMinInterval = 5s
ESIMaxInterval = 1m
ESIRetries = 3
SCNTimeout = 5
SCNRetries = 3
"""


class Isnsd:
    """A server on a free port; `period` bounds the registration period of its clients."""

    def __init__(self, run, period="10m"):
        self.run, self.period = run, period
        (self.port,) = free_ports(1)
        self.process, self.folder = None, None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        """With an empty data base."""
        self.folder = self.run.fresh("isnsd")
        (self.folder / "db").mkdir()
        file = self.folder / "isnsd.conf"
        file.write_text(CONFIGURATION.format(folder=self.folder, port=self.port, period=self.period))
        log = self.folder / "log"
        with open(log, "wb") as output:
            self.process = self.run.spawn("isnsd", "--config", file, "--foreground", stdout=output, stderr=output)
        until(lambda: answers(self.port), f"isnsd listens; its log is {log}")

    def kill(self):
        end(self.process)

    def pause(self):
        """It keeps its connections, accepts more, and says nothing."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class Client:
    """A management node: it registers itself, so that the server answers it, and asks for all of an entity."""

    name = "iqn.2026-11.org.example:reader"

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self.transaction = 0
        self.call(REGISTER, attribute(NAME, self.name) + attribute(ENTITY, "reader") + attribute(0)
                  + attribute(ENTITY, "reader") + attribute(PROTOCOL, 2) + attribute(NAME, self.name) + attribute(TYPE, 2))

    def close(self):
        self.socket.close()

    def take(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise Failed("isnsd closed the connection")
            data += part
        return data

    def call(self, function, payload):
        """The attributes of the answer, as (tag, value)."""
        self.transaction += 1
        self.socket.sendall(struct.pack(">6H", 1, function, len(payload), 0x8C00, self.transaction, 0) + payload)
        _, _, length, _, _, _ = struct.unpack(">6H", self.take(12))
        payload = self.take(length)
        (status,) = struct.unpack(">I", payload[:4])
        if status:
            raise Failed(f"isnsd: function {function} has status {status}")
        return attributes(payload[4:])

    def entity(self, name):
        """Its period, and its portals, nodes and groups, each a map of its attributes by its key."""
        wanted = (ENTITY, PROTOCOL, PERIOD, ADDRESS, PORT, ESI_INTERVAL, ESI_PORT, SCN_PORT, NAME, TYPE, ALIAS, GROUP_NAME,
                  GROUP_ADDRESS, GROUP_PORT, GROUP_TAG)
        said = self.call(QUERY, attribute(NAME, self.name) + attribute(ENTITY, name) + attribute(0)
                         + b"".join(attribute(tag) for tag in wanted))
        found, current = {"portals": {}, "nodes": {}, "groups": {}}, {}
        behind = False
        for tag, value in said:
            if not behind:
                behind = tag == 0
            elif tag == ENTITY:
                current = found
            elif tag == ADDRESS:
                current = {}
                address = value
            elif tag == PORT:
                found["portals"][f"{address}:{value}"] = current
            elif tag == NAME:
                current = found["nodes"].setdefault(value, {})
            elif tag == GROUP_NAME:
                group = value
            elif tag == GROUP_ADDRESS:
                address = value
            elif tag == GROUP_PORT:
                current = found["groups"].setdefault((group, f"{address}:{value}"), {})
            else:
                current[tag] = value
        return found


def attribute(tag, value=b""):
    if isinstance(value, str):
        value = value.encode() + b"\0"
    elif isinstance(value, int):
        value = struct.pack(">I", value)
    value += bytes(-len(value) % 4)
    return struct.pack(">II", tag, len(value)) + value


def attributes(data):
    found = []
    while data:
        tag, length = struct.unpack(">II", data[:8])
        value, data = data[8:8 + length], data[8 + length:]
        if tag in TEXTS:
            value = value.rstrip(b"\0").decode()
        elif tag in (ADDRESS, GROUP_ADDRESS) and length == 16:
            value = socket.inet_ntoa(value[12:])
        elif length == 4:
            (value,) = struct.unpack(">I", value)
        found.append((tag, value))
    return found
