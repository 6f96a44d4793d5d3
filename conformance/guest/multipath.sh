# Two portals, one disk: dm-multipath over both, ext4 and XFS on it, one path lost during I/O.
cat >/etc/multipath.conf <<'CONF'
defaults {
  user_friendly_names no
  find_multipaths no
  path_grouping_policy multibus
  polling_interval 2
  no_path_retry 20
}
CONF
node multipath "$PORT"
node multipath "$PORT2"
login multipath "$PORT"
login multipath "$PORT2"
first=$(device multipath "$PORT")
second=$(device multipath "$PORT2")
udevadm settle
# udev's name of the unit, which multipathd uses.
name_of() { udevadm info --query=property --property=ID_SERIAL --value "$1"; }
wwid=$(name_of "$first")
[ -n "$wwid" ]
[ "$wwid" = "$(name_of "$second")" ]
echo "ok   $first and $second are $wwid"
multipathd
until_works multipathd show daemon
multipathd reconfigure >/dev/null || true
mapped=/dev/mapper/$wwid
until_works test -b "$mapped"
two_paths() { [ "$(multipathd show paths raw format '%t %m' | grep -c "active.*$wwid")" = 2 ]; }
until_works two_paths
multipath -ll | head -8

mkfs.ext4 -q -F "$mapped"
mount "$mapped" /mnt
verified /mnt 8
umount /mnt
e2fsck -fn "$mapped"

mkfs.xfs -q -f "$mapped"
mount "$mapped" /mnt
verified /mnt 24 >/tmp/fio.out 2>&1 &
writer=$!
sleep 2
kill -0 $writer
logout multipath "$PORT2"
echo "ok   one of two paths is gone while fio writes"
sleep 2
login multipath "$PORT2"
wait $writer || { cat /tmp/fio.out; exit 1; }
cat /tmp/fio.out
until_works two_paths
umount /mnt
xfs_repair -n "$mapped" >/dev/null 2>&1
echo "ok   XFS is whole"
multipath -F || { sleep 1; multipath -F; }
multipathd shutdown >/dev/null 2>&1 || true
logout multipath
