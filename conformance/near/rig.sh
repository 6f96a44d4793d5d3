# Sourced by scripts for a gateway with a log in front of a far tgtd, after gateway.sh.
#
# rig_start SIZE        a tgtd with an empty image of that size, $IMAGE, behind a proxy
# rig_stop              ends both
# configure LINES       $WORK/weir.toml: the volume `disk` on it with a log and these keys, through both doors
# near SCRIPT WORD...   runs near/SCRIPT with what there is
# kept                  leaves $WORK where it is after the end, and says where
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/target.sh"
need tgtd tgtadm python3
export WORK IMAGE=$WORK/disk.img
PROXY_PID=
export PYTHONDONTWRITEBYTECODE=1
# What is kept is not deleted.
trap 'rig_stop; if [ -e "$WORK/keep" ]; then WORK=$(mktemp -d); fi; cleanup' EXIT

rig_start() {
  local portal
  rm -f "$WORK"/proxy.socket "$WORK"/ports "$WORK"/disk.*
  truncate -s "$1" "$IMAGE"
  target_start
  python3 "$ROOT/conformance/path/proxy.py" "$WORK/proxy.socket" "${TGT_PORTALS[0]}" >"$WORK/ports" &
  PROXY_PID=$!
  for _ in $(seq 400); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
  [ -s "$WORK/ports" ] || fail "the proxy did not start"
  read -r portal <"$WORK/ports"
  UPSTREAM=127.0.0.1:$portal
  : >"$WORK/log"
}

rig_stop() {
  target_stop
  if [ -n "$PROXY_PID" ]; then
    kill "$PROXY_PID" 2>/dev/null || true
    wait "$PROXY_PID" 2>/dev/null || true
    PROXY_PID=
  fi
}

configure() {
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk" }
[control]
socket = "$WORK/control.socket"
[cache]
size = "${CACHE:-4MiB}"
[[upstream]]
name = "array"
target = "$TGT_NAME"
lun = 1
portals = ["$UPSTREAM"]
[[volume]]
name = "disk"
upstream = "array"
state = "$WORK/disk.state"
log = "$WORK/disk.log"
$1
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  chmod go= "$WORK/weir.toml"
}

near() {
  local script=$1
  shift
  python3 "$ROOT/conformance/near/$script" --weir "$WEIR" --config "$WORK/weir.toml" --log "$WORK/log" \
    --control "$WORK/control.socket" --file "$IMAGE" --proxy "$WORK/proxy.socket" --target "$TARGET" --work "$WORK" "$@"
}

kept() {
  touch "$WORK/keep"
  echo "$WORK"
}
