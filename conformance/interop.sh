#!/usr/bin/env bash
# Other people's initiators against the gateway: libiscsi's tools, and QEMU reading, writing,
# flushing, discarding, converting an image and finding it whole after a restart.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need iscsi-ls iscsi-inq iscsi-readcapacity16 qemu-io qemu-img

expect() { # expect PATTERN COMMAND...: the output must match
  local pattern=$1 out
  shift
  out=$(timeout 60 "$@" 2>&1) || { echo "failed ($?): $*"; echo "$out"; exit 1; }
  grep -qE -- "$pattern" <<<"$out" || { echo "no \"$pattern\" from: $*"; echo "$out"; exit 1; }
  echo "ok   $1: $pattern"
}

for io in direct buffered; do
  echo "--- $io I/O"
  start "$WORK/$io.img" $io
  expect "Target:$TARGET Portal:$PORTAL,1" iscsi-ls "iscsi://$PORTAL"
  expect 'Lun:0 +Type:DIRECT_ACCESS \(Size:25[56]M\)' iscsi-ls -s "iscsi://$PORTAL"
  expect 'Vendor:WEIR' iscsi-inq "$URL"
  expect 'Total size:268435456' iscsi-readcapacity16 "$URL"
  expect 'read 4194304/4194304' qemu-io -f raw -t none \
    -c 'write -P 0x5a 0 64k' -c 'read -P 0x5a 0 64k' -c flush \
    -c 'write -f -P 0xa5 128k 4k' -c 'read -P 0xa5 128k 4k' \
    -c 'write -P 1 192k 128k' -c 'write -z 192k 64k' -c 'discard 256k 64k' -c 'read -P 0 192k 128k' \
    -c 'aio_write -P 1 1M 1M' -c 'aio_write -P 2 2M 1M' -c aio_flush \
    -c 'read -P 1 1M 1M' -c 'read -P 2 2M 1M' \
    -c 'write -P 7 8M 4M' -c 'read -P 7 8M 4M' "$URL"
  # The read of a pattern that is not there must fail, or the reads above prove nothing.
  if out=$(qemu-io -f raw -c 'read -P 9 8M 64k' "$URL" 2>&1); then
    echo "a wrong pattern went unnoticed: $out"
    exit 1
  fi
  grep -q 'verification failed' <<<"$out" && echo "ok   a wrong pattern is noticed"
  head -c 268435456 /dev/urandom >"$WORK/source.img"
  timeout 120 qemu-img convert -n -f raw -O raw -t none "$WORK/source.img" "$URL"
  stop
  start "$WORK/$io.img" $io
  expect 'Images are identical' qemu-img compare -f raw -F raw "$WORK/source.img" "$URL"
  stop
  cmp "$WORK/source.img" "$WORK/$io.img" && echo "ok   the file itself is identical"
  rm -f "$WORK/$io.img"
done
