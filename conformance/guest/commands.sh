# Tests each SCSI feature that the gateway reports; and a volume that grows while it is in use.
node commands
login commands
disk=$(device commands)
until_works sg_turs "$disk"
opcodes=$(sg_opcodes "$disk")
for name in 'Compare and write' 'Write same(16)' Unmap 'Get LBA status' 'Persistent reserve out, register' 'Verify(16)'; do
  grep -qiF "$name" <<<"$opcodes" || { echo "sg_opcodes does not list $name: $opcodes" >&2; exit 1; }
done
echo "ok   sg_opcodes lists $(grep -c '^ [0-9a-f][0-9a-f] ' <<<"$opcodes") commands"
# Every page must be valid.
pages=$(sg_vpd --all "$disk" 2>&1)
for line in 'Unit serial number: [0-9a-f]+' 'designator type: NAA' 'SCSI name string' \
  'Maximum compare and write length: 255 blocks' 'Maximum unmap LBA count: [1-9]' 'Non-rotating medium' \
  'Unmap command supported .LBPU.: 1' 'read zeros .LBPRZ.: 1'; do
  grep -qE "$line" <<<"$pages" || { echo "sg_vpd does not say $line: $pages" >&2; exit 1; }
done
if grep -iE 'malformed|too short|unable|failed|illegal|unexpected' <<<"$pages"; then exit 1; fi
echo "ok   sg_vpd reads $(grep -c ' VPD page' <<<"$pages") pages"
says 'Logical block provisioning: lbpme=1' sg_readcap --16 "$disk"
says 'Lun=|lun' sg_luns "$disk"
sg_sync "$disk"

# Zeroes by discarding, and by WRITE SAME.
pattern() { head -c 4M /dev/zero | tr '\0' '\245' | dd "of=$disk" bs=1M iflag=fullblock oflag=direct status=none; }
all_zero() { cmp -n $((4 << 20)) "$disk" /dev/zero && echo "ok   4 MiB are zero after $1"; }
fresh() { blockdev --flushbufs "$disk"; echo 3 >/proc/sys/vm/drop_caches; }
pattern; blkdiscard -f -o 0 -l 4M "$disk"; fresh; all_zero blkdiscard
pattern; blkdiscard -f -z -o 0 -l 4M "$disk"; fresh; all_zero 'blkdiscard -z'
pattern; sg_unmap --lba=0 --num=8192 --force "$disk"; fresh; all_zero sg_unmap
says 'LBA' sg_get_lba_status --lba=0 "$disk"

# COMPARE AND WRITE: the first block is compared, the second is written.
head -c 512 /dev/zero >/tmp/zero
head -c 512 /dev/zero | tr '\0' '\21' >/tmp/one
cat /tmp/zero /tmp/one >/tmp/caw
sg_compare_and_write --in=/tmp/caw --lba=0 --num=1 "$disk"
fresh
cmp -n 512 "$disk" /tmp/one
echo "ok   COMPARE AND WRITE wrote"
must_fail 'miscompare' sg_compare_and_write --in=/tmp/caw --lba=0 --num=1 "$disk"
cmp -n 512 "$disk" /tmp/one

# A larger volume, without logging out.
before=$(blockdev --getsize64 "$disk")
control resize commands 192MiB
larger() {
  iscsiadm -m node -T "$PREFIX.commands" -R >/dev/null
  [ "$(blockdev --getsize64 "$disk")" = $((192 << 20)) ]
}
until_works larger
echo "ok   $disk grew from $before to $(blockdev --getsize64 "$disk") bytes"
dd if=/tmp/one "of=$disk" bs=512 seek=$(((192 << 11) - 1)) count=1 conv=notrunc,fsync status=none
fresh
cmp -i 0:$(((192 << 20) - 512)) /tmp/one "$disk"
echo "ok   its last block can be written and read"
logout commands
