# Discovery with access lists, login with both digests, ext4, verified random writes, fsck, discard.
discoverer() { iscsiadm -m discoverydb -t st -p "$HOST:$PORT" -o update -n "discovery.sendtargets.auth.$1" -v "$2"; }
discover() { iscsiadm -m discoverydb -t st -p "$HOST:$PORT" --discover; }
iscsiadm -m discoverydb -t st -p "$HOST:$PORT" -o new >/dev/null
discoverer authmethod CHAP
discoverer username alice
discoverer password wrongwrongwrong
must_fail 'authorization failure' discover
discoverer password secretsecret12
discoverer username_in weir
discoverer password_in mutualmutual12
list=$(discover)
grep -F "$HOST:$PORT,1 $PREFIX.ext4" <<<"$list"
grep -F "$HOST:$PORT2,1 $PREFIX.ext4" <<<"$list"
iscsiadm -m discoverydb -t st -p "$HOST:$PORT" -o delete
node ext4
setting ext4 'node.conn[0].iscsi.HeaderDigest' CRC32C
setting ext4 'node.conn[0].iscsi.DataDigest' CRC32C
login ext4
disk=$(device ext4)
says '1' cat /sys/class/iscsi_connection/connection*/header_digest
says '1' cat /sys/class/iscsi_connection/connection*/data_digest
mkfs.ext4 -q -F "$disk"
mount "$disk" /mnt
verified /mnt 16
umount /mnt
e2fsck -fn "$disk"
blkdiscard -f -o 0 -l 64M "$disk"
logout ext4
