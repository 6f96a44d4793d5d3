#!/usr/bin/env bash
# How long a restart takes with a log that is as full as hosts can make it, after kill -9: hosts give up on a session
# after 15 seconds (R16 of docs/reference/writeback.md, section 12).
#
#     restart.sh [--log MIB] [--fill SECONDS] [--cases LIST]     4096 MiB; status 4 if one takes 15 s or more
#
# A case is BYTES:DEPTH of fio's random writes. 4k:1 makes a batch of each write, which is the most work for recovery;
# 64k:32 the fewest batches. The log is filled in memory, where a commit costs nothing, in front of a storage that takes
# an hour for an I/O, until nothing more is let in; then it is copied to $TMPDIR and dropped from the page cache.
# Measured is the time from the start of the process until it says that hosts can connect, and until a read of what is
# only in the log is answered.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need fio qemu-io python3
LOG=4096 FILL=600 CASES="4k:1 4k:32 64k:32"
while [ $# -gt 0 ]; do
  case $1 in
    --log) LOG=$2 ;;
    --fill) FILL=$2 ;;
    --cases) CASES=$2 ;;
    *) fail "--log MIB, --fill SECONDS or --cases LIST, not $1" ;;
  esac
  shift 2
done
MEMORY=$(mktemp -d /dev/shm/weir-restart.XXXXXX)
trap 'rm -rf "$MEMORY"; cleanup' EXIT

configure() { # configure LOG SERVICE
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
unix = "$WORK/nbd.socket"
exports = { disk = "disk" }
[control]
socket = "$WORK/control.socket"
[[backend]]
name = "far"
model = "fixed"
service = "$2"
[[volume]]
name = "disk"
file = "$WORK/disk.img"
size = "16GiB"
backend = "far"
log = "$1"
log_size = "${LOG}MiB"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
}

status() { # status PYTHON: of what `weir volume status` says of the log
  "$WEIR" volume status --socket "$WORK/control.socket" --json |
    python3 -c "import json, sys; log = json.load(sys.stdin)['volumes'][0]['log']; print($1)"
}

slow=
for case in $CASES; do
  rm -f "$WORK"/disk.*
  URI="nbd+unix:///disk?socket=$WORK/nbd.socket"
  # The first write of a new log waits for the storage.
  configure "$MEMORY/log" 1us
  PATIENCE=120 serve
  limited qemu-io -f raw -c "write 0 4k" "$URI" >/dev/null || fail "it takes no writes"
  crash
  configure "$MEMORY/log" 1h
  serve
  # Later to be found in the log.
  limited qemu-io -f raw -c "write -P 7 0 4k" "$URI" >/dev/null || fail "it takes no writes"
  fio --name=fill --ioengine=nbd "--uri=$URI" --rw=randwrite --bs="${case%:*}" --iodepth="${case#*:}" --offset=1m --size=15g \
    --time_based --runtime="$FILL" --randrepeat=0 >"$WORK/fio" 2>&1 &
  fio=$!
  # From 75 % on writes are slowed down to what the storage takes, which is nothing.
  before=0 same=0
  for _ in $(seq "$FILL"); do
    sleep 1
    now=$(status "log['dirty_bytes']")
    if [ "$now" -lt $((before + (LOG << 20) / 2000)) ]; then same=$((same + 1)); else same=0; fi
    before=$now
    if [ $same = 8 ]; then break; fi
  done
  full=$(status "f\"{log['fill']:.1%} full, {log['dirty_bytes'] / 2**20:.0f} MiB dirty\"")
  kill -9 "$fio" 2>/dev/null || true
  wait "$fio" 2>/dev/null || true
  crash
  cp --sparse=never "$MEMORY/log" "$WORK/disk.log"
  rm "$MEMORY/log"
  sync "$WORK/disk.log"
  dd if="$WORK/disk.log" iflag=nocache count=0 status=none
  configure "$WORK/disk.log" 1h
  began=$(date +%s%N)
  PATIENCE=120 serve
  ready=$(($(date +%s%N) - began))
  limited qemu-io -f raw -r -c "read -P 7 0 4k" "$URI" >"$WORK/read" 2>&1 || fail "$(cat "$WORK/read")"
  answered=$(($(date +%s%N) - began))
  memory=$(awk '/VmHWM/ { printf "%d", $2 / 1024 }' "/proc/$PID/status")
  printf '%-7s log of %d MiB, %s: ready in %.2f s, a read answered in %.2f s, %d MiB of memory\n' \
    "$case" "$LOG" "$full" "$(echo "$ready" | awk '{ print $1 / 1e9 }')" "$(echo "$answered" | awk '{ print $1 / 1e9 }')" "$memory"
  if [ $answered -ge 15000000000 ]; then slow="$slow $case"; fi
  crash
done
[ -z "$slow" ] || { echo "15 s or more:$slow"; exit 4; }
