# Write-back caching before a slow upstream: the gateway is killed while fio writes to ext4 and XFS. No process gets
# an error, all written data is present, fsck finds no error, and after a drain the upstream alone has the same data.
sums() { (cd "$1" && sha256sum ./*.0); }
# written DISK: writes that the disk has completed
written() { awk '{ print $5 }' "/sys/block/${1#/dev/}/stat"; }
# written_since DISK BEFORE MORE
written_since() { [ $(($(written "$1") - $2)) -ge "$3" ]; }
logged_in() { ! grep -hv LOGGED_IN /sys/class/iscsi_session/session*/state; }
# only_in_log VOLUME: whether the log is dirty
only_in_log() { [ "$(control dirty "$1")" -gt 0 ]; }
no_faults() { # no_faults KIND DISK
  case $1 in
    ext4) e2fsck -fn "$2" ;;
    xfs) xfs_repair -n "$2" ;;
  esac
}

declare -A disk writer begun sum
for kind in ext4 xfs; do
  node cached-$kind
  login cached-$kind
  disk[$kind]=$(device cached-$kind)
  case $kind in
    ext4) mkfs.ext4 -q -F "${disk[$kind]}" ;;
    xfs) mkfs.xfs -q -f "${disk[$kind]}" ;;
  esac
  mkdir -p /mnt/$kind
  mount "${disk[$kind]}" /mnt/$kind
done
for kind in ext4 xfs; do
  begun[$kind]=$(written "${disk[$kind]}")
  verified /mnt/$kind 16 >/tmp/fio.$kind 2>&1 &
  writer[$kind]=$!
done
# Each job has 4096 writes.
for writes in 400 1600; do
  for kind in ext4 xfs; do
    until_works written_since "${disk[$kind]}" "${begun[$kind]}" $writes
    until_works only_in_log cached-$kind
  done
  kill -0 "${writer[ext4]}" "${writer[xfs]}"
  control crash >/dev/null
  for kind in ext4 xfs; do
    # A request that waits for the session and is retried.
    timeout 60 dd "if=${disk[$kind]}" of=/dev/null bs=4k count=1 iflag=direct status=none
  done
  until_works logged_in
  echo "ok   the sessions are back after a kill at $writes writes and more"
done
for kind in ext4 xfs; do
  wait "${writer[$kind]}" || { cat /tmp/fio.$kind; exit 1; }
  cat /tmp/fio.$kind
  sum[$kind]=$(sums /mnt/$kind)
  umount /mnt/$kind
  no_faults $kind "${disk[$kind]}" >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 1; }
  logout cached-$kind
  control drain cached-$kind >/dev/null
done
# The same files of the upstream, read without the gateway.
for kind in ext4 xfs; do
  node alone-$kind "$FAR"
  login alone-$kind "$FAR"
  disk[$kind]=$(device alone-$kind "$FAR")
  no_faults $kind "${disk[$kind]}" >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 1; }
  mount -o ro "${disk[$kind]}" /mnt/$kind
  [ "$(sums /mnt/$kind)" = "${sum[$kind]}" ] || { echo "$kind: the upstream has other contents"; exit 1; }
  umount /mnt/$kind
  logout alone-$kind "$FAR"
  echo "ok   $kind: whole and the same, through the gateway and on the upstream alone"
done
