# Reservations over NVMe: two hosts, which are told apart by name and identifier, and an iSCSI host on the same volume.
name=nqn.2026-11.org.example:reserved
uuid() { echo "$1$1$1$1$1$1$1$1-$1$1$1$1-$1$1$1$1-$1$1$1$1-$1$1$1$1$1$1$1$1$1$1$1$1"; }
# With multipath the two hosts would share one disk.
reload() { modprobe -r nvme_tcp nvme_fabrics nvme_core && modprobe nvme_core "multipath=$1" && modprobe nvme_tcp; }
modprobe nvme_tcp
reload N
# udev reads disks after a write, and would be refused.
mkdir -p /run/udev/rules.d
echo 'ACTION!="remove", SUBSYSTEM=="block", KERNEL=="sd*|nvme*", OPTIONS+="nowatch"' >/run/udev/rules.d/99-nowatch.rules
udevadm control --reload
for host in 1 2; do
  # Without nvme-cli, which takes two hosts of one machine for one.
  echo "transport=tcp,traddr=$HOST,trsvcid=$NVME,nqn=$name,nr_io_queues=1,keep_alive_tmo=15,reconnect_delay=1,ctrl_loss_tmo=120,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$(uuid $host),hostid=$(uuid $host)" >/dev/nvme-fabrics
done
a=/dev/nvme0n1 b=/dev/nvme1n1
until_works test -b $a
until_works test -b $b
node shared
login shared
s=$(device shared)
until_works sg_turs "$s"
udevadm settle
udevadm control --stop-exec-queue
trap 'udevadm control --start-exec-queue' EXIT
persist() { sg_persist --no-inquiry "$@"; }
writes() { dd if=/dev/zero "of=$1" bs=4k count=1 oflag=direct status=none; }
reads() { dd "if=$1" of=/dev/null bs=4k count=1 iflag=direct status=none; }
register() { nvme resv-register -n 1 "--nrkey=$2" --rrega=0 "--cptpl=${3:-0}" "$1"; } # register DISK KEY [PERSISTENCE]
acquire() { nvme resv-acquire -n 1 "--crkey=$2" "--rtype=$3" "--racqa=${4:-0}" "--prkey=${5:-0}" "$1"; } # acquire DISK KEY TYPE [ACTION KEY]
release() { nvme resv-release -n 1 "--crkey=$2" "--rtype=$3" "--rrela=${4:-0}" "$1"; } # release DISK KEY TYPE [ACTION]
report() { nvme resv-report -n 1 --eds -o json "$1"; }

register $a 0xa1
must_fail 'RESERVATION.CONFLICT|reservation conflict|0x83|0x4083' acquire $b 0xb2 1
register $b 0xb2
until_works sg_turs "$s"
persist -o -G -S 0xc3 "$s"
says '0xa1' persist -i -k "$s"
says '0xb2' persist -i -k "$s"
says '"regctl" *: *3' report $a
must_fail 'INCONSISTENT|0x18|0x4018' nvme resv-report -n 1 $a
# Type 1, write exclusive: only the holder writes, all read.
acquire $a 0xa1 1
says '"rtype" *: *1' report $b
writes $a
must_fail 'Invalid exchange' writes $b
must_fail 'Invalid exchange' writes "$s"
reads $b
reads "$s"
must_fail 'CONFLICT|conflict|0x83' acquire $b 0xb2 1
# The iSCSI host takes it over, exclusively; then host 2, with abort.
persist -o -P -K 0xc3 -S 0xa1 -T 3 "$s"
writes "$s"
must_fail 'Invalid exchange' reads $a
must_fail 'Invalid exchange' writes $b
nvme get-log /dev/nvme0 -i 0x80 -l 64 | grep -E '^0000: 01 00 00 00 00 00 00 00 01 00'
echo "ok   host 1 was told"
acquire $b 0xb2 2 2 0xc3
writes $b
until_works sg_turs "$s"
must_fail 'Invalid exchange' reads "$s"
# Every type is taken and given back.
release $b 0xb2 2
register $a 0xa1
for type in 1 2 3 4 5 6; do
  acquire $b 0xb2 $type
  says "\"rtype\" *: *$type" report $a
  writes $b
  case $type in
  1 | 2) must_fail 'Invalid exchange' writes $a ;;
  *) writes $a ;;
  esac
  release $b 0xb2 $type
done
writes "$s"
# What was asked to persist is there after a crash, and the queues come back as the same hosts.
release $b 0xb2 0 1
register $a 0xa1 3
acquire $a 0xa1 2
control crash
until_works writes $a
says '"ptpls" *: *1' report $a
must_fail 'Invalid exchange' reads $b
until_works sg_turs "$s"
must_fail 'Invalid exchange' reads "$s"
release $a 0xa1 2 1
writes $b
rm /run/udev/rules.d/99-nowatch.rules
udevadm control --start-exec-queue --reload
logout shared
udevadm settle
nvme disconnect -n "$name"
reload Y
