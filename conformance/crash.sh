#!/usr/bin/env bash
# kill -9 of the gateway at random instants, under verified random writes of several iSCSI hosts, with a log on a
# local file and a far upstream (tgtd behind a proxy that delays): no acknowledged write may be lost.
#
#     crash.sh [--rounds N] [--seed SEED]     20 rounds without an argument; 500 take about 15 minutes
#
# Hosts write, overwrite, unmap, flush and read back; after each restart every sector is read and must be the last
# write that was acknowledged, or one sent after it. At the end everything is drained, and the upstream's own file
# must be what the hosts wrote. Then, in fewer rounds, the disk with the log loses its power at the same time, and
# with it any part of what was not flushed: nothing may be lost either, and with `ack = "ram"` unflushed writes must
# be seen to be lost, and flushed ones must not. What hosts do is in near/load.py, what a sector may hold in
# near/ledger.py.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
. "$(dirname "$0")/near/rig.sh"
need qemu-storage-daemon
ROUNDS=20 SEED=$RANDOM
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) ROUNDS=$2 ;;
    --seed) SEED=$2 ;;
    *) fail "--rounds N or --seed SEED, not $1" ;;
  esac
  shift 2
done

# run ACK ROUNDS ARGUMENT...: with a target, a proxy, a log and gateways of its own
run() {
  echo "--- ack = \"$1\"${3:+, and the disk with the log loses its power}"
  rig_start 16M
  configure "ack = \"$1\""$'\nlog_size = "64MiB"'"${3:+$'\n'log_io = \"buffered\"}"
  near crash.py --rounds "$2" --seed "$SEED" --delay 0.005 "${@:3}" || fail "ack = \"$1\": what there was is in $(kept)"
  rig_stop
}
run log "$ROUNDS"
cuts=$((ROUNDS / 5 + 5))
run log "$cuts" --volume-log "$WORK/disk.log"
run ram 5 --volume-log "$WORK/disk.log" --must-lose
