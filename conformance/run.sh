#!/usr/bin/env bash
# libiscsi's conformance program against units of every shape, compared with the list of what does
# not pass, then whole families in one process.
#
#   run.sh [--matrix]    with a matrix of what did not pass on every shape
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need iscsi-test-cu python3

# Shape, and what its volume says. One target each: a reset of one is no business of the others. To
# overwrite the slow one takes 8 s, however fast the disk is.
shapes=(
  'thin:atomic = true
physical_block_size = 512'
  'plain:thin = false'
  'removable:removable = true'
  'sanitize:sanitize = true'
  'read-only:read_only = true'
  '4k:block_size = 4096'
  'slow:sanitize = true
cap_bandwidth = "32MiB/s"'
)
families=(ALL SCSI LINUX iSCSI)

# Two portals of the same gateway: two ways to each unit.
cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0", "127.0.0.2:0"]
TOML
unit() { # unit NAME SETTINGS SIZE
  cat >>"$WORK/weir.toml" <<TOML
[[volume]]
name = "$1"
file = "$WORK/$1.img"
size = "${SIZE:-$3}"
io = "buffered"
$2
[[target]]
name = "$TARGET.$1"
luns = { 0 = "$1" }
TOML
}
for shape in "${shapes[@]}"; do
  unit "${shape%%:*}" "${shape#*:}" 256MiB
done
for family in "${families[@]}"; do unit "${family,,}-family" 'physical_block_size = 512' 256MiB; done
# Something to read where nothing can be written.
truncate -s "${SIZE:-256M}" "$WORK/read-only.img"
serve

urls() { echo "iscsi://${PORTALS[0]}/$TARGET.$1/0,iscsi://${PORTALS[1]}/$TARGET.$1/0"; }
arguments=()
for shape in "${shapes[@]}"; do arguments+=("${shape%%:*}=$(urls "${shape%%:*}")"); done
status=0
time python3 "$ROOT/conformance/iscsi_test_cu.py" "$@" "$ROOT/conformance/known.txt" "${arguments[@]}" || status=1
arguments=()
for family in "${families[@]}"; do arguments+=("$family=$(urls "${family,,}-family")"); done
time python3 "$ROOT/conformance/iscsi_test_cu.py" --continuous "${arguments[@]}" || status=1
kill -0 "$PID" || fail "the gateway is gone"
stop
exit $status
