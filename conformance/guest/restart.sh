# The gateway restarts, and crashes, while fio writes: the sessions recover, and no process gets an error.
node restart
login restart
disk=$(device restart)
session=$(echo /sys/class/iscsi_session/session*)
mkfs.ext4 -q -F "$disk"
mount "$disk" /mnt
verified /mnt 32 >/tmp/fio.out 2>&1 &
writer=$!
for how in restart crash; do
  sleep 1
  kill -0 $writer
  control $how
  # A request that waits for the session and is retried.
  timeout 60 dd "if=$disk" of=/dev/null bs=4k count=1 iflag=direct status=none
  [ "$(cat "$session/state")" = LOGGED_IN ]
  echo "ok   the session is back after a $how"
done
kill -0 $writer
wait $writer || { cat /tmp/fio.out; exit 1; }
cat /tmp/fio.out
umount /mnt
e2fsck -fn "$disk"
logout restart
