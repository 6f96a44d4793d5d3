#!/usr/bin/env bash
# Ten thousand connections that are up to no good, and a session that must not notice: see flood.py.
# Status 4: it noticed.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
LOAD=${LOAD:-$ROOT/target/release/iscsi-load}
need python3 "$LOAD"
# The gateway's own limit of open files is none of what is tested here.
ulimit -n "$(ulimit -Hn)"
status=0
# As it is by default, where most are turned away, and where all of them are let in to wait.
for limits in '' 'max_connections = 12000
max_logins = 12000'; do
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
$limits
[[volume]]
name = "disk"
file = "$WORK/disk.img"
size = "64MiB"
io = "buffered"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
  serve
  python3 "$ROOT/conformance/flood.py" "$PORTAL" "$PORTAL/$TARGET/0" "$PID" "$LOAD" || status=$?
  kill -0 "$PID" || fail "the gateway is gone"
  stop
  [ $status = 0 ] || break
done
exit $status
