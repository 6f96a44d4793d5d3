#!/usr/bin/env bash
# libiscsi's conformance program against the gateway, compared with the list of what fails.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need iscsi-test-cu python3
start "$WORK/disk.img" buffered
python3 "$ROOT/conformance/iscsi_test_cu.py" "$URL" "$ROOT/conformance/known.txt"
kill -0 "$PID" || { echo "the gateway is gone" >&2; exit 1; }
stop
