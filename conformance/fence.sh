#!/usr/bin/env bash
# Two gateways with logs in front of one unit of somebody else's target: one at a time writes to it.
#
#     fence.sh [tgtd|istgt]...     both without an argument
#
# A holds the unit on all paths. B is refused, even while A is killed; A knows itself when it comes again. Then A is
# frozen (SIGSTOP) in the middle of writes, B takes over by the key that the refusal has named, writes, and A goes on:
# nothing of A's, whose log still has some, may be found on the target's image where B has written, A must say that it
# is fenced, and a restart must not bring it back, neither while B has the unit nor when it is nobody's.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
. "$(dirname "$0")/path/tgtd.sh"
. "$(dirname "$0")/path/istgt.sh"
need tgtd tgtadm istgt fio qemu-io python3
export PYTHONDONTWRITEBYTECODE=1
SECRET=secretsecret12
MUTUAL=mutualmutual12
PROCESSES=()
declare -A RUNS
end_all() {
  tgtd_stop
  local one
  for one in "${PROCESSES[@]}" "${RUNS[@]}"; do
    kill -9 "$one" 2>/dev/null || true
    wait "$one" 2>/dev/null || true
  done
  PROCESSES=() RUNS=()
}
trap 'end_all; cleanup' EXIT

# configure NAME TARGET LUN PORTALS LINES: $WORK/NAME/weir.toml; LINES are the upstream's
configure() {
  rm -rf "${WORK:?}/$1"
  mkdir "$WORK/$1"
  cat >"$WORK/$1/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk" }
[control]
socket = "control.socket"
[[account]]
name = "alice"
secret = "$SECRET"
[[account]]
name = "tgtside"
secret = "$MUTUAL"
[[upstream]]
name = "array"
target = "$2"
lun = $3
portals = [$4]
initiator_name = "iqn.2026-11.org.example:$1"
retry_at_most = "200ms"
$5
[[volume]]
name = "disk"
upstream = "array"
state = "disk.state"
log = "disk.log"
log_size = "64MiB"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  chmod go= "$WORK/$1/weir.toml"
}

# run NAME WORD...: starts it and waits until it serves; sets URI
run() {
  local name=$1
  shift
  : >"$WORK/$name/ready"
  "$WEIR" serve "$WORK/$name/weir.toml" --json "$@" >"$WORK/$name/ready" 2>>"$WORK/$name/log" &
  RUNS[$name]=$!
  for _ in $(seq 400); do
    if [ -s "$WORK/$name/ready" ] || ! kill -0 "${RUNS[$name]}" 2>/dev/null; then break; fi
    sleep 0.05
  done
  [ -s "$WORK/$name/ready" ] || lost "$name did not start" "$name"
  URI=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["nbd"][0].rstrip("/") + "/disk")' "$WORK/$name/ready")
}

lost() { # lost WORDS NAME
  tail -8 "$WORK/$2/log" >&2
  fail "$1"
}

ask() { # ask NAME WORD...
  local name=$1
  shift
  timeout 60 "$WEIR" "$@" --socket "$WORK/$name/control.socket"
}

# fence NAME KEY: a field of what `volume status` says of its fence
fence() {
  ask "$1" volume status disk --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["volumes"][0]["fences"][0][sys.argv[1]])' "$2"
}

end() { # end NAME [SIGNAL]
  kill "-${2:-TERM}" "${RUNS[$1]}"
  wait "${RUNS[$1]}" 2>/dev/null || [ "${2:-TERM}" = KILL ] || lost "$1 left with status $?" "$1"
  unset "RUNS[$1]"
}

# refused NAME STATUS PATTERN WORD...: it must not start, with this exit status, and must say why
refused() {
  local name=$1 wanted=$2 pattern=$3 status=0 out
  shift 3
  out=$(timeout 60 "$WEIR" serve "$WORK/$name/weir.toml" "$@" 2>&1) || status=$?
  [ $status = "$wanted" ] || fail "$name ended with $status, not $wanted: $out"
  grep -qE -- "$pattern" <<<"$out" || fail "$name was refused without \"$pattern\": $out"
  echo "ok   $name is refused: $pattern"
}

# far PORTALS: FAR are the same portals 10 ms away, so that A has something in its log when it is frozen
far() {
  local ports direct
  rm -f "$WORK/proxy.socket" "$WORK/ports"
  mapfile -t direct < <(grep -o '[0-9.]*:[0-9]*' <<<"$1")
  python3 "$ROOT/conformance/path/proxy.py" "$WORK/proxy.socket" "${direct[@]}" >"$WORK/ports" &
  PROCESSES+=($!)
  for _ in $(seq 100); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
  read -r -a ports <"$WORK/ports"
  python3 - "$WORK/proxy.socket" "${#ports[@]}" <<'PY'
import socket, sys
with socket.socket(socket.AF_UNIX) as orders:
    orders.connect(sys.argv[1])
    answers = orders.makefile()
    for path in range(int(sys.argv[2])):
        orders.sendall(f"line {path} 0 0.01\n".encode())
        answers.readline()
PY
  FAR=$(printf '"127.0.0.1:%s", ' "${ports[@]}")
  FAR=${FAR%, }
}

# fill NAME BYTE: 16 MiB through a gateway
fill() {
  timeout 120 qemu-io -f raw -t none -c "write -P $2 0 8M" -c "write -P $2 8M 8M" -c flush "$URI" >/dev/null ||
    lost "cannot write through $1" "$1"
}

# owners WHAT FILE TARGET LUN PORTALS LINES
owners() {
  local what=$1 file=$2 key again writer paths dirty
  shift 2
  paths=$(grep -o '"[^"]*"' <<<"$3" | wc -l)
  far "$3"
  configure a "$1" "$2" "$FAR" "$4"
  configure b "$@"
  run a
  key=$(fence a key)
  [ "$(grep -c 'path is ready: the unit is reserved' "$WORK/a/log")" = "$paths" ] || lost "not reserved on every path" a
  refused b 7 "key $key.*Registrants Only"
  fill a 0xaa
  end a KILL
  refused b 7 "key $key"
  run a
  again=$(fence a key)
  [ "${again:6}" = "${key:6}" ] && [ "$again" != "$key" ] || fail "A does not know itself: $key, then $again"
  echo "ok   $what: A is killed and knows itself: $key, then $again"

  # Host writes are under way, and the log has some, when A is frozen.
  timeout 120 fio --name=a --ioengine=nbd "--uri=$URI" --rw=randwrite --bs=64k --size=16m --iodepth=8 --fsync=4 \
    --buffer_pattern=0xaa --time_based --runtime=30 >"$WORK/a/fio" 2>&1 &
  writer=$!
  PROCESSES+=("$writer")
  sleep 2
  kill -STOP "${RUNS[a]}"
  run b --take-over "disk=$again"
  fill b 0xbb
  ask b volume drain disk >/dev/null
  kill -CONT "${RUNS[a]}"
  for _ in $(seq 200); do
    if grep -q FENCED "$WORK/a/log"; then break; fi
    sleep 0.05
  done
  grep -q "FENCED.*$(fence b key)" "$WORK/a/log" || lost "A does not say that it is fenced" a
  [ "$(fence a state) $(fence a holder)" = "fenced $(fence b key)" ] || fail "A's status: $(ask a volume status)"
  wait "$writer" && fail "hosts of A were told nothing"
  ask a volume status disk | sed 's/^/     /'
  dirty=$(ask a volume status disk --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["volumes"][0]["log"]["dirty_bytes"])')
  [ "$dirty" -gt 0 ] || fail "$what: A had nothing left to write, so this says nothing"
  sleep 1
  end a
  # The image that the target itself has.
  python3 - "$file" <<'PY' || fail "$what: a write of A reached the unit after the take-over"
import sys
with open(sys.argv[1], "rb") as image:
    data = image.read(16 << 20)
sys.exit(data != b"\xbb" * len(data))
PY
  echo "ok   $what: B takes over from a frozen A, which is fenced; nothing of A's is on the unit"
  refused a 7 "key $(fence b key)"
  end b
  refused a 6 'PRGENERATION'
  run b
  end b
  echo "ok   $what: what was drained is given up, and B may come again; A may not"
}

tgtd_case() {
  truncate -s 64M "$WORK/disk.img"
  tgtd_start "$WORK/disk.img"
  local portals
  portals=$(printf '"%s", ' "${TGT_PORTALS[@]}")
  owners tgtd "$WORK/disk.img" "$TGT_NAME" 1 "${portals%, }" ''
  end_all
}

istgt_case() {
  istgt_start
  owners istgt "$WORK/istgt/disk.img" "$ISTGT_NAME:disk1" 0 "\"$ISTGT_PORTAL\"" 'account = "alice"
mutual = "tgtside"'
  end_all
}

if [ $# = 0 ]; then set -- tgtd istgt; fi
for case in "$@"; do
  case $case in
    tgtd | istgt)
      echo "--- $case"
      "${case}_case"
      ;;
    *) fail "tgtd or istgt, not $case" ;;
  esac
done
