#!/usr/bin/env bash
# A volume with a log whose upstream (tgtd behind a proxy) is away or slow. The cases are in near/outage.py.
#
#     outage.sh [--away SECONDS] [--backlog MIB] [CASE...]     away full reads; without CASE all of them
#
# away    tgtd is killed and its portal refuses connections for SECONDS (30), under writes: no error to a host, and
#         afterwards the upstream's image is what was written
# full    hosts write more than the upstream takes into a log of 16 MiB: how long writes take at which fill; no error,
#         and nothing that was acknowledged is lost by a kill then
# reads   4 KiB reads while MIB (128) are written back: their p99 may be 1.5 times that without, and write-back must
#         have a tenth of the link. Status 4 if it is not so in each of three attempts: it may have to do with the machine
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
. "$(dirname "$0")/near/rig.sh"
AWAY=30 BACKLOG=128
cases=()
while [ $# -gt 0 ]; do
  case $1 in
    --away) AWAY=$2; shift ;;
    --backlog) BACKLOG=$2; shift ;;
    away | full | reads) cases+=("$1") ;;
    *) fail "--away SECONDS, --backlog MIB, away, full or reads, not $1" ;;
  esac
  shift
done
if [ ${#cases[@]} = 0 ]; then cases=(away full reads); fi

# run CASE: with a target, a proxy, a log and a gateway of its own
run() {
  local verdict=0 size=64
  case $1 in
    away) size=$((64 + 2 * AWAY)) ;;
    full) size=16 ;;
    reads) size=$((BACKLOG * 3 / 2 + 64)) ;;
  esac
  echo "--- $1"
  rig_start $((BACKLOG + 320))M
  configure "log_size = \"${size}MiB\""
  near outage.py --away "$AWAY" --backlog "$BACKLOG" --log-size "$size" "$1" || verdict=$?
  [ $verdict = 0 ] || [ $verdict = 4 ] || fail "$1: what there was is in $(kept)"
  rig_stop
  return $verdict
}

each "${cases[@]}"
exit "$status"
