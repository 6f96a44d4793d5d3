#!/usr/bin/env bash
# A real Linux initiator in a virtual machine, by the scripts in guest/, all in one boot.
#
#   guest.sh DIR [PART...]   DIR holds build.sh (makes the guest once) and run.sh (boots it with a
#                            script); without parts all of them run
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need python3 tgtd tgtadm
. "$(dirname "$0")/path/tgtd.sh"
GUEST=$(cd "$1" && pwd)
shift
parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=(ext4 multipath restart near reservations commands chap lio flash); fi
export GUEST_DIR=${GUEST_DIR:-/var/tmp/weir-guest}
[ -f "$GUEST_DIR/root.img" ] || bash "$GUEST/build.sh" >"$WORK/build.log" 2>&1 ||
  { tail -20 "$WORK/build.log"; exit 1; }
# What a kernel has to say when storage fails it. No part may make it say so, but where its own
# reservations are in the way: the block layer calls a reservation conflict a nexus error. That the timer of the virtual
# machine did not tick for a moment is the host's doing.
COMPLAINTS='i/o error|critical [a-z]+ error|reservation conflict|rejecting i/o|timing out command|recovery timed out'
COMPLAINTS+='|offline|sense key|synchronize cache.*failed|(ext4|jbd2|xfs).*(error|warning|shut)|blocked for more|hung|call trace'
COMPLAINTS+='|corrupt|bug:|warning:'
declare -A TOLERATED=([reservations]='reservation conflict|critical nexus error, dev sd')
# Longest run of one part and of all, in seconds.
PART_SECONDS=240
ALL_SECONDS=900

# The guest sees the host's loopback as 10.0.2.2, so that is what discovery must advertise: the ports
# have to be known before the start.
HOST=10.0.2.2
read -r PORT PORT2 < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in sockets))')
cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:$PORT", "127.0.0.1:$PORT2"]
advertise = ["$HOST:$PORT", "$HOST:$PORT2"]
[[account]]
name = "alice"
secret = "secretsecret12"
[[account]]
name = "weir"
secret = "mutualmutual12"
[control]
socket = "$WORK/control.socket"
[cache]
size = "16MiB"
[discovery]
accounts = ["alice"]
mutual = "weir"
TOML
volume() { # volume NAME SIZE [LINES-OF-TARGET]
  cat >>"$WORK/weir.toml" <<TOML
[[volume]]
name = "$1"
file = "$WORK/$1.img"
size = "$2"
[[target]]
name = "$TARGET.$1"
luns = { 0 = "$1" }
${3:-}
TOML
}
volume ext4 128MiB
volume multipath 384MiB
volume restart 128MiB
volume reservations 64MiB
volume commands 128MiB
volume chap 64MiB $'accounts = ["alice"]\nmutual = "weir"'

# What is far is a tgtd behind a proxy that delays; the guest can reach it past both, as targets of their own.
export PYTHONDONTWRITEBYTECODE=1
proxy='' server='' flash=''
MEMORY=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'for one in $proxy $server $flash; do kill "$one" 2>/dev/null || true; done; tgtd_stop; rm -rf "$MEMORY"; cleanup' EXIT
truncate -s 128M "$WORK/near-ext4.img"
truncate -s 320M "$WORK/near-xfs.img" # the least that mkfs.xfs makes
tgtd_start "$WORK/near-ext4.img"
tgt --mode logicalunit --op new --tid 1 --lun 2 --backing-store "$WORK/near-xfs.img"
FAR=${TGT_PORTALS[1]##*:}
python3 "$ROOT/conformance/harness/proxy.py" "$WORK/proxy.socket" "${TGT_PORTALS[0]}" >"$WORK/ports" &
proxy=$!
for _ in $(seq 100); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
far=$(cat "$WORK/ports")
python3 -c '
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(b"line 0 0 0.01\n")
one.recv(100)' "$WORK/proxy.socket"
number=1
for kind in ext4 xfs; do
  cat >>"$WORK/weir.toml" <<TOML
[[upstream]]
name = "far-$kind"
target = "$TGT_NAME"
lun = $number
portals = ["127.0.0.1:$far"]
[[volume]]
name = "near-$kind"
upstream = "far-$kind"
state = "$WORK/near-$kind.state"
log = "$WORK/near-$kind.log"
log_size = "64MiB"
[[target]]
name = "$TARGET.near-$kind"
luns = { 0 = "near-$kind" }
TOML
  number=$((number + 1))
  tgt --mode target --op new --tid $number --targetname "$TARGET.alone-$kind"
  tgt --mode logicalunit --op new --tid $number --lun 1 --backing-store "$WORK/near-$kind.img"
  tgt --mode target --op bind --tid $number --initiator-address ALL
done
chmod go= "$WORK/weir.toml"

# Emulated flash: a gateway of its own, so that a recording has nothing else. Reads take 150 ms, programs 250 ms.
cat >"$WORK/backend.toml" <<TOML
[[backend]]
name = "flash"
model = "ssd-paper"
register = "25ms"
read = "125ms"
program = "225ms"
TOML
cat - "$WORK/backend.toml" >"$WORK/flash.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[[volume]]
name = "flash"
file = "$MEMORY/flash.img"
size = "64MiB"
backend = "flash"
[[target]]
name = "$TARGET.flash"
luns = { 0 = "flash" }
TOML
"$WEIR" serve "$WORK/flash.toml" --json --record "$MEMORY/flash.recording" >"$WORK/flash.ready" 2>>"$WORK/log" &
flash=$!
for _ in $(seq 200); do if [ -s "$WORK/flash.ready" ]; then break; fi; sleep 0.05; done
FLASH=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["portals"][0].rpartition(":")[2])' "$WORK/flash.ready") ||
  fail "the gateway of the emulated flash did not start"

coproc CONTROLLER { exec python3 "$ROOT/conformance/guest/controller.py" "$WEIR" "$WORK/weir.toml" "$WORK/log" \
  "$WORK/control.socket"; }
controller=$CONTROLLER_PID
read -r control <&"${CONTROLLER[0]}" || fail "the gateway did not start"

# What a part fetches: the guest's script has room for text only.
mkdir "$WORK/files"
strip -o "$WORK/files/weir" "$WEIR"
tar -cf "$WORK/files/conformance.tar" -C "$ROOT" conformance
python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$WORK/files" >"$WORK/served" 2>/dev/null &
server=$!
for _ in $(seq 100); do if [ -s "$WORK/served" ]; then break; fi; sleep 0.05; done
read -r _ _ _ _ _ files _ <"$WORK/served" || fail "nobody serves the files"

{
  echo "export HOST=$HOST PORT=$PORT PORT2=$PORT2 FAR=$FAR FLASH=$FLASH CONTROL=$control FILES=$files PREFIX=$TARGET"
  for part in common "${parts[@]}"; do
    echo "cat >/tmp/$part.part <<'END OF PART'"
    cat "$ROOT/conformance/guest/$part.sh"
    echo 'END OF PART'
  done
  # Each part answers for what the kernel has said since the one before.
  cat <<SH
complaints() { dmesg --read-clear | grep -iE '$COMPLAINTS' | grep -vE "MP-BIOS bug|\${1:-^\$}"; }
status=0
if complaints; then echo "the kernel complained while it booted"; status=1; fi
part() { # part NAME TOLERATED
  echo "--- \$1"
  local start=\$SECONDS
  if ! timeout -k 5 $PART_SECONDS bash -euo pipefail -c ". /tmp/common.part; . /tmp/\$1.part"; then
    echo "=== \$1 FAILED after \$((SECONDS - start)) s"
    udevadm settle
    timeout 20 iscsiadm -m node --logout >/dev/null 2>&1
    dmesg --read-clear | tail -40
    status=1
  elif complaints "\$2"; then
    echo "=== \$1 FAILED: the kernel complained"
    status=1
  else
    echo "=== \$1 passed in \$((SECONDS - start)) s"
  fi
}
SH
  for part in "${parts[@]}"; do echo "part $part '${TOLERATED[$part]:-}'"; done
  echo 'exit $status'
} >"$WORK/script.sh"
status=0
# What the guest measured is for the comparison below, not for readers.
time bash "$GUEST/run.sh" "$WORK/script.sh" $ALL_SECONDS 2>&1 | tee "$WORK/guest.log" | grep -av --line-buffered '^flash [1-4] ' || true
if grep '=== kernel:' "$WORK/guest.log"; then
  echo "the guest's kernel complained at the end" >&2
  status=1
fi
kill "$flash"
wait "$flash" || { echo "the gateway of the emulated flash did not leave cleanly" >&2; status=1; }
flash=''
# The guest's processor is emulated: a hiccup of a few of its ticks decides its 99th percentile of some hundred requests.
case " ${parts[*]} " in *' flash '*)
  : >"$WORK/hosts"
  while read -r _ phase op depth told; do
    base64 -d <<<"$told" | gunzip >"$WORK/fio.$phase.log"
    echo "$phase $op $depth $WORK/fio.$phase.log" >>"$WORK/hosts"
  done < <(grep -a '^flash [1-4] ' "$WORK/guest.log")
  [ "$(wc -l <"$WORK/hosts")" = 4 ] || { echo "the guest did not measure the emulated flash" >&2; status=1; }
  python3 "$ROOT/conformance/emulated.py" "$WEIR" "$MEMORY/flash.recording" 0 64MiB "$WORK/backend.toml" "$WORK/hosts" 90 ||
    # A look, not a verdict: the machine's own times are in them.
    [ $? = 4 ] || { echo "=== flash FAILED: it could not be judged" >&2; status=1; }
  ;;
esac
exec {CONTROLLER[1]}>&-
wait "$controller" || { echo "the gateway did not leave cleanly" >&2; status=1; }
if grep -q panicked "$WORK/log"; then fail "the gateway panicked"; fi
grep -q '=== guest exit 0' "$WORK/guest.log" || status=1
if [ $status != 0 ]; then
  tail -20 "$WORK/log" >&2
  echo "the guest's script:" >&2
  grep -a -B 20 'FAILED' "$WORK/guest.log" >&2 || tail -20 "$WORK/guest.log" >&2
fi
exit $status
