# Sourced by the scripts here: starts and stops a gateway of the release build on a free port.
#
# start FILE [io]   serves FILE as LUN 0; sets PORTAL (host:port), URL and PID
# stop              SIGTERM, and waits; fails if the gateway did not leave cleanly

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WEIR=${WEIR:-$ROOT/target/release/weir}
TARGET=iqn.2026-11.io.weir:conformance
WORK=$(mktemp -d)
PID=

cleanup() {
  if [ -n "$PID" ]; then kill -9 "$PID" 2>/dev/null || true; fi
  rm -rf "$WORK"
}
trap cleanup EXIT

need() {
  for tool in "$@"; do
    command -v "$tool" >/dev/null || {
      echo "$tool is missing: apt-get install tgt libiscsi-bin qemu-utils qemu-block-extra" >&2
      exit 1
    }
  done
}

start() {
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:${LISTEN_PORT:-0}"]
advertise = ${ADVERTISE:-[]}
[[volume]]
name = "disk"
file = "$1"
size = "${SIZE:-256MiB}"
io = "${2:-auto}"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  : >"$WORK/ready"
  "$WEIR" serve "$WORK/weir.toml" --json ${RECORD:+--record "$RECORD"} >"$WORK/ready" 2>>"$WORK/log" &
  PID=$!
  for _ in $(seq 100); do
    if [ -s "$WORK/ready" ] || ! kill -0 "$PID" 2>/dev/null; then break; fi
    sleep 0.05
  done
  PORTAL=$(sed -n 's/.*"portals":\["\([^"]*\)".*/\1/p' "$WORK/ready")
  if [ -z "$PORTAL" ]; then
    echo "the gateway did not start:" >&2
    cat "$WORK/log" >&2
    exit 1
  fi
  URL=iscsi://$PORTAL/$TARGET/0
}

stop() {
  kill "$PID"
  wait "$PID" || {
    echo "the gateway left with status $?:" >&2
    tail -20 "$WORK/log" >&2
    exit 1
  }
  PID=
  if grep -q panicked "$WORK/log"; then
    echo "the gateway panicked:" >&2
    grep -A5 panicked "$WORK/log" >&2
    exit 1
  fi
}
