# Sourced by the scripts here: starts and stops a gateway of the release build on free ports.
#
# start FILE [io]   serves FILE as LUN 0 of TARGET; sets PORTAL (host:port), URL and PID
# serve [COMMAND]   serves $WORK/weir.toml, by that command, within PATIENCE seconds (10); sets PORTALS (all of them), PORTAL (the first), PID and
#                   NBD (the URIs of the NBD exports, if there are any)
# stop              SIGTERM, and waits; fails if the gateway did not leave cleanly
# crash             SIGKILL, and waits
# each CASE...      `run CASE`, up to three times as long as it returns 4: a busy machine adds times of its own. Sets
#                   status, to 4 if a case never did better
# fail WORDS        says what is wrong, with the end of the gateway's log, and ends the script
# expect PATTERN COMMAND...   the command must succeed and its output match
# refuse PATTERN COMMAND...   the command must fail and its output match

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
      echo "$tool is missing: .ci/run installs what the scripts here need" >&2
      exit 1
    }
  done
}

fail() {
  echo "FAIL $*" >&2
  if [ -s "$WORK/log" ]; then tail -5 "$WORK/log" >&2; fi
  exit 1
}

# A command with a limit; a function sees to its own.
limited() {
  if declare -F "$1" >/dev/null; then "$@"; else timeout 120 "$@"; fi
}

expect() {
  local pattern=$1 out
  shift
  out=$(limited "$@" 2>&1) || fail "status $? from: $*"$'\n'"$out"
  grep -qE -- "$pattern" <<<"$out" || fail "no \"$pattern\" from: $*"$'\n'"$out"
  echo "ok   ${*:1:3}: $pattern"
}

refuse() {
  local pattern=$1 out status=0
  shift
  out=$(limited "$@" 2>&1) || status=$?
  [ $status != 0 ] || fail "this must be refused: $*"$'\n'"$out"
  [ $status != 124 ] || fail "no answer to: $*"$'\n'"$out"
  grep -qE -- "$pattern" <<<"$out" || fail "refused without \"$pattern\": $*"$'\n'"$out"
  echo "ok   ${*:1:3} is refused: $pattern"
}

serve() {
  chmod go= "$WORK/weir.toml" # it may hold secrets
  : >"$WORK/ready"
  "$@" "$WEIR" serve "$WORK/weir.toml" --json ${RECORD:+--record "$RECORD"} >"$WORK/ready" 2>>"$WORK/log" &
  PID=$!
  for _ in $(seq $((20 * ${PATIENCE:-10}))); do
    if [ -s "$WORK/ready" ] || ! kill -0 "$PID" 2>/dev/null; then break; fi
    sleep 0.05
  done
  [ -s "$WORK/ready" ] || fail "the gateway did not start"
  read -r -a PORTALS < <(ready 'print(*ready["portals"])')
  read -r -a NBD < <(ready 'print(*ready.get("nbd", []))') || true
  PORTAL=${PORTALS[0]}
}

each() {
  local case attempt verdict
  status=0
  for case in "$@"; do
    for attempt in 1 2 3; do
      verdict=0
      run "$case" || verdict=$?
      if [ $verdict = 0 ]; then continue 2; fi
      echo "     attempt $attempt of $case is missed"
    done
    status=4
  done
}

ready() { # ready PYTHON: looks at what the gateway said when it was ready
  python3 -c "import json, sys; ready = json.load(open(sys.argv[1])); $1" "$WORK/ready"
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
  serve
  URL=iscsi://$PORTAL/$TARGET/0
}

stop() {
  kill "$PID"
  wait "$PID" || fail "the gateway left with status $?"
  PID=
  if grep -q panicked "$WORK/log"; then
    grep -A5 panicked "$WORK/log" >&2
    fail "the gateway panicked"
  fi
}

crash() {
  kill -9 "$PID"
  wait "$PID" 2>/dev/null || true
  PID=
}
