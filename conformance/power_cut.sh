#!/usr/bin/env bash
# What is on the upstream alone, at any instant, is what a disk may show after a power cut: the gateway with its log
# may be lost for ever, and the file system is still whole. Needs root, for FUSE and loop devices.
#
#     power_cut.sh [--cuts N] [--seed SEED] [ext4|xfs...]     200 cuts of both without arguments
#
# A file system on the gateway's volume is worked on, with a kill -9 of the gateway; the file behind the volume is a
# disk that records (near/recorded.py). It is cut at N instants, each with some of the writes since its last flush lost
# or torn; the journal is replayed, and fsck must find nothing. Cuts that take flushed writes as well must be seen.
set -euo pipefail
if [ "$(id -u)" -ne 0 ]; then
  echo "power_cut.sh mounts file systems and must run as root; nothing was tested" >&2
  exit 1
fi
. "$(dirname "$0")/gateway.sh"
export PYTHONDONTWRITEBYTECODE=1
PATH=$PATH:/usr/sbin:/sbin
need qemu-storage-daemon python3 losetup mkfs.ext4 e2fsck
CUTS=200 SEED=$RANDOM
kinds=()
while [ $# -gt 0 ]; do
  case $1 in
    --cuts) CUTS=$2; shift ;;
    --seed) SEED=$2; shift ;;
    ext4 | xfs) kinds+=("$1") ;;
    *) fail "--cuts N, --seed SEED, ext4 or xfs, not $1" ;;
  esac
  shift
done
if [ ${#kinds[@]} = 0 ]; then kinds=(ext4 xfs); fi

for kind in "${kinds[@]}"; do
  echo "--- $kind"
  size=64M
  if [ "$kind" = xfs ]; then
    need mkfs.xfs xfs_repair
    size=320M # the least that mkfs.xfs makes
  fi
  rm -f "$WORK"/upstream* "$WORK"/disk.*
  truncate -s "$size" "$WORK/upstream.base"
  # The host comes back to the same portal.
  port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:$port"]
[control]
socket = "$WORK/control.socket"
[[volume]]
name = "disk"
file = "$WORK/upstream"
io = "buffered"
log = "$WORK/disk.log"
log_size = "64MiB"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  python3 "$ROOT/conformance/near/power_cut.py" --weir "$WEIR" --config "$WORK/weir.toml" --log "$WORK/log" \
    --control "$WORK/control.socket" --target "$TARGET" --work "$WORK" --portal "127.0.0.1:$port" \
    --cuts "$CUTS" --seed "$SEED" "$kind" || fail "$kind"
done
