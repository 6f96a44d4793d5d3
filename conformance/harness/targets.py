"""Third-party iSCSI targets, as upstreams: tgtd and istgt. LIO runs in the guest (guest/lio.sh)."""

import os
import re
import socket
import subprocess

from .case import Failed, end, output, until

NAME = "iqn.2026-11.org.example"
SECRET, MUTUAL = "secretsecret12", "mutualmutual12"
CONTROL = "7"


class Tgtd:
    """A tgtd with one target, whose LUN 1 is a file, on two free ports of one portal group."""

    name, lun = f"{NAME}:tgt", 1

    def __init__(self, run, image, thin=False, folder="tgtd"):
        self.run, self.image, self.thin, self.folder = run, image, thin, folder
        self.process, self.portals = None, []
        self.start()

    def start(self):
        folder = self.run.fresh(self.folder)
        self.environment = {**os.environ, "TGT_IPC_SOCKET": str(folder / "ctl")}
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = self.run.spawn("tgtd", "-f", "-C", CONTROL, "--iscsi", "portal=127.0.0.1:0,portal=127.0.0.1:0",
                                          stdout=log, stderr=log, env=self.environment)
        until(self.listening, f"tgtd starts; its log is {self.log.read_text()[-500:]}")
        self.adm("target", "new", tid=1, targetname=self.name)
        self.add(1, self.image)
        if self.thin:
            self.adm("logicalunit", "update", tid=1, lun=1, params="thin_provisioning=1")
        self.adm("target", "bind", tid=1, initiator_address="ALL")

    def listening(self):
        if self.process.poll() is not None:
            raise Failed(f"tgtd left with status {self.process.returncode}: {self.log.read_text()[-500:]}")
        said = subprocess.run(["tgtadm", "-C", CONTROL, "--lld", "iscsi", "--mode", "portal", "--op", "show"], check=False,
                              env=self.environment, capture_output=True, text=True, timeout=30).stdout
        self.portals = re.findall(r"^Portal: (127[^,]*),", said, re.M)
        return len(self.portals) == 2

    def adm(self, mode, op, *flags, **keys):
        words = [word for key, value in keys.items() for word in ("--" + key.replace("_", "-"), value)]
        output("tgtadm", "-C", CONTROL, "--lld", "iscsi", "--mode", mode, "--op", op, *words, *flags, env=self.environment)

    def add(self, lun, image, tid=1):
        self.adm("logicalunit", "new", tid=tid, lun=lun, backing_store=image)

    def another(self, tid, name, image):
        """One more target, with one unit."""
        self.adm("target", "new", tid=tid, targetname=name)
        self.add(1, image, tid)
        self.adm("target", "bind", tid=tid, initiator_address="ALL")

    def authenticate(self):
        """Requires mutual CHAP, and CRC32C over headers and data."""
        for user, secret, *outgoing in (("alice", SECRET), ("tgtside", MUTUAL, "--outgoing")):
            self.adm("account", "new", user=user, password=secret)
            self.adm("account", "bind", *outgoing, tid=1, user=user)
        for digest in ("HeaderDigest", "DataDigest"):
            self.adm("target", "update", tid=1, name=digest, value="CRC32C")

    def kill(self):
        """Kills it: tgtd ignores SIGTERM, and may wait for sessions when tgtadm ends it."""
        end(self.process)


ISTGT = """[Global]
  NodeBase "{name}"
  PidFile {folder}/istgt.pid
  AuthFile {folder}/auth.conf
  MediaDirectory {folder}
  LogFacility "local7"
  Timeout 30
  NopInInterval 20
  DiscoveryAuthMethod Auto
  MaxSessions 16
  MaxConnections 4
  MaxR2T 32
  MaxOutstandingR2T 16
  DefaultTime2Wait 2
  DefaultTime2Retain 60
  FirstBurstLength 262144
  MaxBurstLength 1048576
  MaxRecvDataSegmentLength 262144
  InitialR2T Yes
  ImmediateData Yes
  DataPDUInOrder Yes
  DataSequenceInOrder Yes
  ErrorRecoveryLevel 0
[UnitControl]
  AuthMethod None
  AuthGroup None
  Portal UC1 127.0.0.1:{control}
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:{port}
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask 127.0.0.0/8
[LogicalUnit1]
  TargetName disk1
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod CHAP Mutual
  AuthGroup AuthGroup1
  UseDigest Header Data
  UnitType Disk
  LUN0 Storage {folder}/disk.img 64MB
"""


class Istgt:
    """An istgt with one target, whose LUN 0 is a file of 64 MiB: mutual CHAP."""

    name, lun = f"{NAME}:disk1", 0

    def __init__(self, run):
        folder = run.fresh("istgt")
        self.image = run.image("istgt/disk.img", 64)
        port, control = free_ports(2)
        (folder / "auth.conf").write_text(f'[AuthGroup1]\n  Auth "alice" "{SECRET}" "tgtside" "{MUTUAL}"\n')
        (folder / "auth.conf").chmod(0o600)
        (folder / "istgt.conf").write_text(ISTGT.format(name=NAME, folder=folder, port=port, control=control))
        with open(folder / "log", "wb") as log:
            self.process = run.spawn("istgt", "-D", "-c", folder / "istgt.conf", "-p", folder / "istgt.pid", stdout=log, stderr=log)
        self.portals = [f"127.0.0.1:{port}"]
        until(lambda: answers(port), f"istgt listens; its log is {folder / 'log'}")


def free_ports(count):
    """Ports without a listener, for programs that need a configured port."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
