#!/usr/bin/env bash
# The storage behind a volume runs full: the initiator is told (DATA PROTECT, space allocation
# failed), nothing that was acknowledged is lost, other volumes go on, and once blocks are given back
# writes work again. Needs root, for a small file system to fill.
set -euo pipefail
if [ "$(id -u)" -ne 0 ]; then
  echo "full_disk.sh mounts a file system and must run as root; nothing was tested" >&2
  exit 1
fi
. "$(dirname "$0")/gateway.sh"
need qemu-io mount umount

MOUNT=$WORK/small
OTHER_TARGET=iqn.2026-11.io.weir:other
leave() {
  if [ -n "$PID" ]; then
    kill -9 "$PID" 2>/dev/null || true
    wait "$PID" 2>/dev/null || true
    PID=
  fi
  if mountpoint -q "$MOUNT"; then umount "$MOUNT" || umount -l "$MOUNT"; fi
  cleanup
}
trap leave EXIT

# What qemu-io says, whether it succeeds or not. QEMU asks thin disks for GET LBA STATUS, which is
# optional, and complains when there is none; that does not count here.
io() { # io URL COMMAND...
  local url=$1 commands=() command
  shift
  for command in "$@"; do commands+=(-c "$command"); done
  timeout 60 qemu-io -f raw -t none "${commands[@]}" "$url" 2>&1 | grep -v GET_LBA_STATUS || true
}
done_well() { # done_well WHAT OUTPUT: no complaint, and something was done
  if grep -qiE 'failed|error|failure' <<<"$2" || ! grep -q 'ops;' <<<"$2"; then
    fail "$1: $2"
  fi
}

serve_two() {
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[[volume]]
name = "disk"
file = "$MOUNT/disk.img"
size = "256MiB"
io = "$1"
[[volume]]
name = "other"
file = "$WORK/other.img"
size = "64MiB"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
[[target]]
name = "$OTHER_TARGET"
luns = { 0 = "other" }
TOML
  : >"$WORK/log"
  serve
  URL=iscsi://$PORTAL/$TARGET/0
  OTHER=iscsi://$PORTAL/$OTHER_TARGET/0
}

mkdir "$MOUNT"
for mode in auto buffered; do
  echo "--- $mode I/O"
  mount -t tmpfs -o size=48M weir-full-disk "$MOUNT"
  rm -f "$WORK/other.img"
  serve_two $mode

  # A session that was there before, and writes and reads all the while.
  (
    for i in $(seq 400); do
      out=$(io "$OTHER" "write -P $((i % 250 + 1)) $((i % 60))M 1M" "read -P $((i % 250 + 1)) $((i % 60))M 1M")
      if grep -qiE 'failed|error|failure' <<<"$out"; then echo "$out"; exit 1; fi
      if [ -e "$WORK/enough" ]; then exit 0; fi
    done
  ) >"$WORK/neighbour" 2>&1 &
  neighbour=$!

  # Each MiB has a pattern of its own, until one of them finds no room.
  written=0
  refused=
  while [ $written -lt 200 ]; do
    out=$(io "$URL" "write -P $((written + 1)) ${written}M 1M")
    if grep -qiE 'failed|error|failure' <<<"$out"; then refused=$out; break; fi
    written=$((written + 1))
  done
  [ -n "$refused" ] || fail "the small file system never ran full"
  [ $written -ge 40 ] || fail "only $written MiB found room: $refused"
  # Key 7 and code 27/07, as libiscsi prints them, and what QEMU makes of them.
  grep -q 'DATA PROTECTION(7).*2707' <<<"$refused" || fail "other sense data: $refused"
  grep -q 'No space left on device' <<<"$refused" || fail "the initiator was told something else: $refused"
  echo "ok   full after $written MiB: $(head -1 <<<"$refused")"
  kill -0 "$PID" || fail "the gateway left"
  grep -q 'request failed volume=disk.*the storage behind the volume is full' "$WORK/log" ||
    fail "the log does not say that the storage is full"
  echo "ok   the log names the volume and the reason"

  reads=()
  for ((i = 0; i < written; i++)); do reads+=("read -P $((i + 1)) ${i}M 1M"); done
  out=$(io "$URL" "${reads[@]}")
  done_well "acknowledged data" "$out"
  if grep -q 'verification failed' <<<"$out"; then fail "acknowledged data was lost: $out"; fi
  echo "ok   all $written MiB that were acknowledged are intact"

  done_well "giving back" "$(io "$URL" "discard 0 16M")"
  done_well "zeroes" "$(io "$URL" "read -P 0 0 16M")"
  out=$(io "$URL" "write -P 201 ${written}M 8M" "flush" "read -P 201 ${written}M 8M" "read -P 17 16M 1M")
  done_well "writing again" "$out"
  echo "ok   after giving back 16 MiB, 8 MiB more can be written"

  touch "$WORK/enough"
  wait $neighbour || fail "the other volume was disturbed: $(cat "$WORK/neighbour")"
  rm "$WORK/enough"
  done_well "the other volume" "$(io "$OTHER" 'write -P 77 0 4M' 'read -P 77 0 4M')"
  echo "ok   the other volume was served all the while"
  stop
  umount "$MOUNT"
done
