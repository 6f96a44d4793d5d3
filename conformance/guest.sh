#!/usr/bin/env bash
# A real Linux initiator in a virtual machine: discovery, login, ext4, verified fio at depth 16, fsck.
#
#   guest.sh DIR    DIR holds build.sh (makes the guest once) and run.sh (boots it with a script)
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
GUEST=$(cd "$1" && pwd)
export GUEST_DIR=${GUEST_DIR:-/var/tmp/weir-guest}
[ -f "$GUEST_DIR/root.img" ] || bash "$GUEST/build.sh" >"$WORK/build.log" 2>&1 ||
  { tail -20 "$WORK/build.log"; exit 1; }

# The guest sees the host's loopback as 10.0.2.2, so that is what discovery must advertise: the port
# has to be known before the start.
PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
LISTEN_PORT=$PORT ADVERTISE="[\"10.0.2.2:$PORT\"]" start "$WORK/disk.img"
cat >"$WORK/script.sh" <<SH
set -e
iscsiadm -m discovery -t st -p 10.0.2.2:$PORT | grep -F '10.0.2.2:$PORT,1 $TARGET'
iscsiadm -m node -T $TARGET -p 10.0.2.2:$PORT --login
udevadm settle; sleep 1
D=\$(lsscsi -t | awk '/iqn/ && \$NF ~ /^\/dev\// {print \$NF; exit}')
mkfs.ext4 -q -F \$D && mount \$D /mnt
fio --name=v --directory=/mnt --size=32m --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 \
  --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 --end_fsync=1 | grep -E 'IOPS|err='
umount /mnt && e2fsck -fn \$D
blkdiscard -f -o 0 -l 64M \$D
iscsiadm -m node -T $TARGET -p 10.0.2.2:$PORT --logout
SH
bash "$GUEST/run.sh" "$WORK/script.sh" 300 2>&1 | tee "$WORK/guest.log"
grep -q '=== guest exit 0' "$WORK/guest.log" || { echo "the guest's script failed" >&2; exit 1; }
if grep -q '=== kernel:' "$WORK/guest.log"; then
  echo "the guest's kernel complained" >&2
  exit 1
fi
stop
