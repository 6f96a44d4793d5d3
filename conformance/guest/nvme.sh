# NVMe over TCP: discovery, four I/O queues, ext4 with verified writes at depth 32, digests, discard, a resize, and a
# crash of the gateway under verified writes.
name=nqn.2026-11.org.example:nvme
way=(-t tcp -a "$HOST" -s "$NVME")
modprobe nvme_tcp
list=$(nvme discover "${way[@]}")
grep -F "subnqn:  $name" <<<"$list"
grep -F "trsvcid: $NVME2" <<<"$list"
# attach [OPTION]...
attach() { nvme connect "${way[@]}" -n "$name" -k 15 -c 1 -l 120 "$@" && until_works test -b /dev/nvme0n1 && udevadm settle; }
detach() { udevadm settle; nvme disconnect -n "$name"; }
# written FILE MIB: random writes at depth 32, read back
written() {
  fio --name=v "--filename=$1" "--size=${2}m" --rw=randwrite --bs=4k --ioengine=libaio --iodepth=32 --direct=1 \
    --verify=crc32c --verify_fatal=1 --do_verify=1 --end_fsync=1 | grep -E 'IOPS|err='
}
attach -i 2 -W 2
dmesg | grep -F 'creating 4 I/O queues'
disk=/dev/nvme0n1
mkfs.ext4 -q -F "$disk"
mount "$disk" /mnt
written /mnt/file 16
fstrim -v /mnt
umount /mnt
e2fsck -fn "$disk"
detach
for digests in -g -G "-g -G"; do
  # shellcheck disable=SC2086 # two options
  attach $digests
  written "$disk" 4
  detach
  echo "ok   verified with $digests"
done
attach -i 2 -W 2
dd if=/dev/urandom of=/tmp/block bs=1M count=16 status=none
dd if=/tmp/block of="$disk" bs=16M oflag=direct status=none
dd if="$disk" bs=16M count=1 iflag=direct status=none | cmp - /tmp/block
control resize nvme 160MiB
until_works grep -qx $((160 * 2048)) /sys/block/nvme0n1/size
echo "ok   the new size is seen"
written "$disk" 24 >/tmp/fio.out 2>&1 &
writer=$!
sleep 1
kill -0 $writer
control crash
timeout 60 dd "if=$disk" of=/dev/null bs=4k count=1 iflag=direct status=none
echo "ok   the queues are back after a crash"
wait $writer || { cat /tmp/fio.out; exit 1; }
cat /tmp/fio.out
detach
