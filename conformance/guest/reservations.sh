# Persistent reservations between two initiators, across a restart and across a crash.
one=iqn.2026-11.org.example:first
two=iqn.2026-11.org.example:second
# udev reads disks after a write, and would be refused.
mkdir -p /run/udev/rules.d
echo 'ACTION!="remove", SUBSYSTEM=="block", KERNEL=="sd*", OPTIONS+="nowatch"' >/run/udev/rules.d/99-nowatch.rules
udevadm control --reload
# Each initiator is a separate interface with another name.
for name in first second; do
  iscsiadm -m iface -I $name --op new >/dev/null
  iscsiadm -m iface -I $name --op update -n iface.initiatorname -v "iqn.2026-11.org.example:$name" >/dev/null
  node reservations "$PORT" $name
done
login reservations
a=$(device reservations "$PORT" "$one")
b=$(device reservations "$PORT" "$two")
[ "$a" != "$b" ]
persist() { sg_persist --no-inquiry "$@"; }
ready() { until_works sg_turs "$1"; }
writes() { ready "$1"; dd if=/dev/zero "of=$1" bs=4k count=1 oflag=direct status=none; }
reads() { ready "$1"; dd "if=$1" of=/dev/null bs=4k count=1 iflag=direct status=none; }
ready "$a"
ready "$b"
# udev reads disks that return, and would be refused.
udevadm settle
udevadm control --stop-exec-queue
trap 'udevadm control --start-exec-queue' EXIT

says 'NO registered reservation keys' persist -i -k "$a"
persist -o -G -S 0xa1 "$a"
persist -o -G -S 0xb2 "$b"
says '0xb2' persist -i -k "$a"
for name in "$one" "$two"; do says "$name" persist -i -s "$a"; done
# Type 1: write exclusive. Only the holder writes, all read.
persist -o -R -K 0xa1 -T 1 "$a"
says 'Write Exclusive' persist -i -r "$b"
writes "$a"
must_fail 'Invalid exchange' writes "$b"
reads "$b"
must_fail 'conflict' persist -o -R -K 0xb2 -T 1 "$b"
# Another host takes over, as a cluster does after the loss of a node.
persist -o -P -K 0xb2 -S 0xa1 -T 1 "$b"
writes "$b"
must_fail 'Invalid exchange' writes "$a"
persist -o -C -K 0xb2 "$b"
says 'NO registered reservation keys' persist -i -k "$a"
writes "$a"

# With APTPL the keys and the reservation outlive the gateway; type 3: exclusive access.
persist -o -G -S 0xa1 -Z "$a"
persist -o -R -K 0xa1 -T 3 "$a"
for how in restart crash; do
  control $how
  ready "$a"
  says '0xa1' persist -i -k "$a"
  says 'Exclusive Access' persist -i -r "$a"
  writes "$a"
  must_fail 'Invalid exchange' writes "$b"
  must_fail 'Invalid exchange' reads "$b"
done
persist -o -C -K 0xa1 "$a"
# Without APTPL they do not.
persist -o -G -S 0xa1 "$a"
control restart
ready "$a"
says 'NO registered reservation keys' persist -i -k "$a"
writes "$b"
# By the kernel's count, only the requests above were refused.
refused=$(dmesg | grep -c 'critical nexus error' || true)
[ "$refused" = $((2 + 2 * 2)) ] || { echo "$refused requests were refused: $(dmesg | tail -20)" >&2; exit 1; }
echo "ok   $refused requests were refused, as they should"
rm /run/udev/rules.d/99-nowatch.rules
udevadm control --start-exec-queue --reload
logout reservations
