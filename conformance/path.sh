#!/usr/bin/env bash
# An upstream volume over two paths to tgtd, which lead through proxies that are killed, frozen and
# slowed down under the load of other people's clients and of a verifier. The cases are in path/cases.py.
#
#     path.sh [--hold SECONDS] [CASE...]     killed slow frozen both gone flaps; without CASE all of them
#
# SECONDS is how long `gone` takes all paths away; 60 if it is not given.
# A figure of `slow` or `both` that is not what is wanted may have to do with the machine: it is repeated up to
# twice, and the output shows every attempt. Status 4: no attempt was good, but nothing was lost.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
. "$(dirname "$0")/path/tgtd.sh"
need tgtd tgtadm fio qemu-io python3
HOLD=60
if [ "${1:-}" = --hold ]; then HOLD=$2; shift 2; fi
# Requests are named when they are overdue, which takes up to twice the 10 s of the default.
LIMITS=
if [ "$HOLD" -lt 25 ]; then LIMITS=$'[limits]\noverdue = "3s"'; fi
cases=("$@")
if [ ${#cases[@]} = 0 ]; then cases=(killed slow frozen both gone flaps); fi
PROXY_PID=
export PYTHONDONTWRITEBYTECODE=1
trap 'tgtd_stop; if [ -n "$PROXY_PID" ]; then kill "$PROXY_PID" 2>/dev/null || true; fi; cleanup' EXIT

# run CASE: with a target, proxies and a gateway of its own
run() {
  local case=$1 verdict=0 first second address
  echo "--- $case"
  rm -f "$WORK"/proxy.socket "$WORK"/ports "$WORK"/disk.img "$WORK"/tgt.ctl*
  truncate -s 256M "$WORK/disk.img"
  tgtd_start "$WORK/disk.img"
  python3 "$ROOT/conformance/path/proxy.py" "$WORK/proxy.socket" "${TGT_PORTALS[@]}" >"$WORK/ports" &
  PROXY_PID=$!
  for _ in $(seq 400); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
  [ -s "$WORK/ports" ] || fail "the proxy did not start"
  read -r first second <"$WORK/ports"
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk" }
[control]
socket = "$WORK/control.socket"
$LIMITS
[[upstream]]
name = "array"
target = "$TGT_NAME"
lun = 1
portals = ["127.0.0.1:$first", "127.0.0.1:$second"]
[[volume]]
name = "disk"
upstream = "array"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  : >"$WORK/log"
  serve
  address=${NBD[0]#*://} address=${address%%/*}
  timeout 400 python3 "$ROOT/conformance/path/cases.py" --proxy "$WORK/proxy.socket" --nbd "$address" --file "$WORK/disk.img" \
    --weir "$WEIR" --control "$WORK/control.socket" --hold "$HOLD" "$case" || verdict=$?
  [ $verdict = 0 ] || [ $verdict = 4 ] || fail "$case"
  stop
  kill "$PROXY_PID"
  wait "$PROXY_PID" 2>/dev/null || true
  PROXY_PID=
  tgtd_stop
  return $verdict
}

each "${cases[@]}"
exit "$status"
