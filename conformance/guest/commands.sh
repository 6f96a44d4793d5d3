# What the gateway says that it can do, done; and a volume that grows while it is in use.
node commands
login commands
disk=$(device commands)
until_works sg_turs "$disk"
opcodes=$(sg_opcodes "$disk")
for name in 'Compare and write' 'Write same(16)' 'Unmap' 'Get LBA status' 'Persistent reserve out' 'Verify(16)'; do
  grep -qiF "${name%%(*}" <<<"$opcodes" || { echo "sg_opcodes does not list $name: $opcodes" >&2; exit 1; }
done
echo "ok   sg_opcodes lists $(grep -c '' <<<"$opcodes") lines"
for page in sv di bl bdc lbpv sn; do says '.' sg_vpd --page=$page "$disk"; done
says 'Unmap command supported .LBPU.: 1' sg_vpd --page=lbpv "$disk"
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

# COMPARE AND WRITE: the first block is what is expected, the second is written in its place.
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
logout commands
