# The target of the Linux kernel as upstream: a group with two portals, which are lost in turn; then one portal of
# another group, which goes into standby and comes back (ALUA). The gateway runs in the guest.
#
# Each part uses separate paths. If a session is lost and its group has no other portal, the gateway resets the unit;
# Linux 6.1 may hang if this coincides with the end of the lost connection.
fetch() { python3 -c 'import shutil, sys, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1]), open(sys.argv[2], "wb"))' "http://$HOST:$FILES/$1" "/tmp/lio/$1"; }
# LIO keeps reservations in files there, named by the serial number of the unit.
mkdir -p /tmp/lio /etc/target/pr
for file in weir conformance.tar; do fetch "$file"; done
chmod +x /tmp/lio/weir
cd /tmp/lio
tar -xf conformance.tar

for module in configfs target_core_mod target_core_file iscsi_target_mod; do modprobe "$module"; done
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
kernel=/sys/kernel/config/target
mkdir -p "$kernel/core/fileio_0"
for name in disk logged; do
  truncate -s 64M $name.img
  mkdir "$kernel/core/fileio_0/$name"
  echo "fd_dev_name=/tmp/lio/$name.img,fd_dev_size=$((64 << 20)),fd_buffered_io=1" >"$kernel/core/fileio_0/$name/control"
  echo "weir-$name" >"$kernel/core/fileio_0/$name/wwn/vpd_unit_serial"
  echo 1 >"$kernel/core/fileio_0/$name/enable"
done
disk=$kernel/core/fileio_0/disk
target=iqn.2026-11.org.example:lio
for group in 1 2; do
  mkdir -p "$kernel/iscsi/$target/tpgt_$group/np/127.0.0.1:326$group" "$kernel/iscsi/$target/tpgt_$group/lun/lun_0"
  if [ $group = 1 ]; then mkdir "$kernel/iscsi/$target/tpgt_1/np/127.0.0.1:3263"; fi
  portal_group=$kernel/iscsi/$target/tpgt_$group
  ln -s "$disk" "$portal_group/lun/lun_0/disk"
  for setting in authentication=0 generate_node_acls=1 demo_mode_write_protect=0; do
    echo "${setting#*=}" >"$portal_group/attrib/${setting%=*}"
  done
  mkdir "$disk/alua/group$group"
  echo $group >"$disk/alua/group$group/tg_pt_gp_id"
  echo 3 >"$disk/alua/group$group/alua_access_type"
  echo "group$group" >"$portal_group/lun/lun_0/alua_tg_pt_gp"
  echo 1 >"$portal_group/enable"
done
mkdir "$kernel/iscsi/$target/tpgt_1/lun/lun_1"
ln -s "$kernel/core/fileio_0/logged" "$kernel/iscsi/$target/tpgt_1/lun/lun_1/logged"

python3 -m conformance.harness.proxy /tmp/lio/proxy.socket 127.0.0.1:3261 127.0.0.1:3263 127.0.0.1:3262 >ports &
proxy=$!
until_works test -s ports
read -r first second other <ports
cat >weir.toml <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk", asymmetric = "asymmetric", logged = "logged" }
[control]
socket = "/tmp/lio/control.socket"
[[upstream]]
name = "lio"
target = "$target"
lun = 0
portals = ["127.0.0.1:$first", "127.0.0.1:$second"]
[[volume]]
name = "disk"
upstream = "lio"
[[upstream]]
name = "alua"
target = "$target"
lun = 0
initiator_name = "iqn.2026-11.org.example:asymmetric"
portals = ["127.0.0.1:$first", "127.0.0.1:$other"]
[[volume]]
name = "asymmetric"
upstream = "alua"
[[upstream]]
name = "logged"
target = "$target"
lun = 1
initiator_name = "iqn.2026-11.org.example:logged"
portals = ["127.0.0.1:$first"]
[[volume]]
name = "logged"
upstream = "logged"
state = "/tmp/lio/logged.state"
log = "/tmp/lio/logged.log"
log_size = "32MiB"
[[target]]
name = "$PREFIX.lio"
luns = { 0 = "disk" }
TOML
chmod 600 weir.toml
./weir serve weir.toml --json >ready 2>log &
weir=$!
until_works test -s ready || { cat log; exit 1; }
address=$(python3 -c 'import json; print(json.load(open("ready"))["nbd"][0].split("/")[2])')
python3 -m conformance.harness.load proxy.socket "$address" disk.img ||
  { tail -20 log; exit 1; }

fio --name=v --ioengine=nbd "--uri=nbd://$address/logged" --rw=randwrite --bs=4k --size=8m --iodepth=8 --fsync=32 \
  --verify=crc32c --verify_fatal=1 | grep -E 'IOPS|err='
./weir volume drain logged --socket control.socket >status
grep -E 'logged: .* epochs written back, one at a time' status || { cat status; exit 1; }
python3 - <<'END'
import json, subprocess
log = json.loads(subprocess.check_output(["./weir", "volume", "status", "logged", "--socket", "control.socket", "--json"]))
assert log["volumes"][0]["log"]["dirty_bytes"] == 0, log
END
echo "ok   a log is destaged to LIO, and the status says how epochs become durable there"

# alua GROUP STATE: 0 active/optimized, 2 standby
alua() { echo "$2" >"$disk/alua/group$1/alua_access_state"; }
# carried PATH: bytes sent on the path so far
carried() {
  python3 -c 'import sys; from conformance.harness.proxy import Proxy
print(Proxy("proxy.socket")("counts")[int(sys.argv[1])]["up"])' "$1"
}
# A target reports the change with its next answer.
work() { # work SECONDS
  fio --name=v --ioengine=nbd "--uri=nbd://$address/asymmetric" --rw=randwrite --bs=4k --offset=16m --size=4m --iodepth=8 \
    --time_based --runtime="$1" --verify=crc32c --verify_fatal=1 --verify_backlog=64 | grep -E 'IOPS|err='
}
work 8 &
worker=$!
alua 2 2
until_works sh -c "./weir path list alua --socket control.socket | grep -qi standby"
sleep 0.5
before=$(carried 2)
wait "$worker"
[ $(($(carried 2) - before)) -lt 50000 ] || { echo "a path in standby was used"; exit 1; }
alua 2 0
until_works sh -c "! ./weir path list alua --socket control.socket | grep -qi standby"
before=$(carried 2)
work 4
[ $(($(carried 2) - before)) -gt 200000 ] || {
  echo "a path that is optimized again was not used:"
  ./weir path list alua --socket control.socket
  tail -20 log
  exit 1
}
echo "ok   a path in standby carries no requests, and does once it is optimized"
kill "$weir"
wait "$weir"
kill "$proxy"
if grep -q panicked log; then tail -5 log; exit 1; fi
