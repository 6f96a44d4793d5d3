#!/usr/bin/env bash
# Other people's initiators against the gateway: libiscsi's tools, and QEMU reading, writing,
# flushing, discarding, converting an image and finding it whole after a restart, and going on while
# the gateway restarts and crashes.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need iscsi-ls iscsi-inq iscsi-readcapacity16 qemu-io qemu-img

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
  refuse 'verification failed' qemu-io -f raw -c 'read -P 9 8M 64k' "$URL"
  head -c 268435456 /dev/urandom >"$WORK/source.img"
  timeout 120 qemu-img convert -n -f raw -O raw -t none "$WORK/source.img" "$URL"
  stop
  start "$WORK/$io.img" $io
  expect 'Images are identical' qemu-img compare -f raw -F raw "$WORK/source.img" "$URL"
  stop
  cmp "$WORK/source.img" "$WORK/$io.img" && echo "ok   the file itself is identical"
  rm -f "$WORK/$io.img"
done

echo '--- a restart and a crash while QEMU writes'
LISTEN_PORT=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
start "$WORK/restart.img"
# 32 times 4 MiB, each 64 KiB with a pattern of its own, and pauses to be interrupted in.
BLOCKS=2048
commands=()
for ((i = 0; i < BLOCKS; i++)); do
  commands+=(-c "aio_write -q -P $((i % 250 + 1)) $((i * 64))k 64k")
  if [ $((i % 64)) = 63 ]; then commands+=(-c 'sleep 50'); fi
done
commands+=(-c aio_flush)
for ((i = 0; i < BLOCKS; i++)); do commands+=(-c "read -P $((i % 250 + 1)) $((i * 64))k 64k"); done
timeout 120 qemu-io -f raw -t none "${commands[@]}" -c flush "$URL" >"$WORK/said" 2>&1 &
qemu=$!
written() { # written MIB: waits until the file holds that much
  for _ in $(seq 1000); do
    if [ "$(stat -c %b "$WORK/restart.img")" -ge $(($1 << 11)) ]; then return; fi
    sleep 0.01
  done
  fail "QEMU never wrote $1 MiB: $(tail -3 "$WORK/said")"
}
written 16; stop; serve
written 64; crash; serve
wait $qemu || fail "qemu-io: $(tail -3 "$WORK/said")"
if grep -qiE 'failed|error' "$WORK/said"; then fail "qemu-io: $(grep -iE 'failed|error' "$WORK/said" | head -3)"; fi
[ "$(grep -c 'read 65536/65536' "$WORK/said")" = $BLOCKS ] || fail "qemu-io read too little: $(tail -3 "$WORK/said")"
[ "$(grep -c 'INFO session peer' "$WORK/log")" -ge 3 ] || fail "three gateways should have seen the host"
echo "ok   QEMU came back both times, and reads all that it wrote"
stop
