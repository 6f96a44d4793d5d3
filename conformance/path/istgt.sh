# Sourced by scripts that need an istgt of their own, after they have set WORK, SECRET and MUTUAL: CHAP both ways.
#
# istgt_start       serves $WORK/istgt/disk.img, 64 MiB, as LUN 0 of ISTGT_NAME:disk1; sets ISTGT_PORTAL (host:port) and
#                   adds to PROCESSES what is to be ended

ISTGT_NAME=iqn.2026-11.org.example
# istgt has to be told its port.
istgt_start() {
  local port control
  mkdir -p "$WORK/istgt"
  truncate -s 64M "$WORK/istgt/disk.img"
  read -r port control < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in sockets))')
  cat >"$WORK/istgt/auth.conf" <<CONF
[AuthGroup1]
  Auth "alice" "$SECRET" "tgtside" "$MUTUAL"
CONF
  chmod 600 "$WORK/istgt/auth.conf"
  cat >"$WORK/istgt/istgt.conf" <<CONF
[Global]
  NodeBase "$ISTGT_NAME"
  PidFile $WORK/istgt/istgt.pid
  AuthFile $WORK/istgt/auth.conf
  MediaDirectory $WORK/istgt
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
  Portal UC1 127.0.0.1:$control
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:$port
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
  LUN0 Storage $WORK/istgt/disk.img 64MB
CONF
  istgt -D -c "$WORK/istgt/istgt.conf" -p "$WORK/istgt/istgt.pid" >"$WORK/istgt.log" 2>&1 &
  PROCESSES+=($!)
  ISTGT_PORTAL=127.0.0.1:$port
  for _ in $(seq 100); do
    if (exec 9<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
    sleep 0.1
  done
  fail "istgt did not start: $(tail -3 "$WORK/istgt.log")"
}
