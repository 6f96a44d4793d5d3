#!/usr/bin/env bash
# Emulated flash as a host meets it: fio over NBD, at depth 1 and 16, beside the model's own response times for the
# same requests. emulated.py says what is compared.
#
#     emulated.sh
#
# paper: the device of the flash operation group paper: a look. A read takes 150 us there, of which wake-ups of host and
#        gateway are a good part on a busy machine.
# slow:  the same forty times slower. Median, 90th and 99th percentile, as fio measured them and as the gateway did, must
#        be within 10 % of the model's.
#
# A comparison that fails is repeated up to twice, with every attempt in the output: a busy machine adds its own times.
# Then the operator's view: wear is counted, and a file that is slower than its model is told.
# Status 4: a line that must hold does not.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need fio python3
# `weir explain` tells of 100,000 requests, of which the paper's device does 26,667 a second.
SECONDS_PAPER=3
SECONDS_SLOW=${SECONDS_SLOW:-8}
ATTEMPTS=3
# The file and the recording are in memory where there is room: a disk that others write to is later than any model.
MEMORY=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$MEMORY"; cleanup' EXIT
# Where it may, gateway and host go before everything else that the machine does, which is not what is measured.
first=(chrt --fifo 1)
"${first[@]}" true 2>/dev/null || first=()

# device NAME LINES...: the table of a backend
device() {
  printf '[[backend]]\nname = "flash"\nmodel = "%s"\n' "$1" >"$WORK/backend.toml"
  shift
  for line in "$@"; do echo "$line" >>"$WORK/backend.toml"; done
}

# configure SIZE [LINES]: a gateway with one volume on it
configure() {
  cat - "$WORK/backend.toml" >"$WORK/weir.toml" <<TOML
[iscsi]
listen = []
[control]
socket = "$WORK/control.socket"
[nbd]
unix = ["$WORK/nbd.socket"]
exports = { disk = "disk" }
TOML
  printf '[[volume]]\nname = "disk"\nfile = "%s"\nsize = "%s"\nbackend = "flash"\nio = "buffered"\n%s\n' \
    "$MEMORY/disk.img" "$1" "${2:-}" >>"$WORK/weir.toml"
}

serve_export() {
  : >"$WORK/ready"
  "${first[@]}" "$WEIR" serve "$WORK/weir.toml" --json --record "$MEMORY/recording" >"$WORK/ready" 2>>"$WORK/log" &
  PID=$!
  for _ in $(seq 200); do
    if [ -s "$WORK/ready" ] || ! kill -0 "$PID" 2>/dev/null; then break; fi
    sleep 0.05
  done
  [ -s "$WORK/ready" ] || fail "the gateway did not start"
}

# load OP DEPTH SECONDS: what fio measures
load() {
  rm -f "$WORK/load_"*.log # fio appends
  timeout $(($3 + 60)) "${first[@]}" fio --name=load --ioengine=nbd "--uri=nbd+unix:///disk?socket=$WORK/nbd.socket" \
    --rw="rand$1" --bs=4k --size=256m --time_based --runtime="$3" --iodepth="$2" --norandommap --randrepeat=0 \
    --thread --per_job_logs=0 "--write_lat_log=$WORK/load" --log_avg_msec=0 >"$WORK/fio.log" 2>&1 ||
    fail "fio: $(tail -3 "$WORK/fio.log")"
  echo "1 $1 $2 $WORK/load_clat.log" >"$WORK/hosts"
}

# compare OP DEPTH SECONDS: a gateway that has done nothing yet, and a load
compare() {
  rm -f "$MEMORY/disk.img"
  truncate -s 256M "$MEMORY/disk.img"
  serve_export
  load "$1" "$2" "$3"
  stop
  python3 "$ROOT/conformance/emulated.py" "$WEIR" "$MEMORY/recording" 0 256MiB "$WORK/backend.toml" "$WORK/hosts"
}

# attempts NAME MUST OP DEPTH SECONDS: until it holds
attempts() {
  local attempt status
  for attempt in $(seq "$ATTEMPTS"); do
    status=0
    compare "$3" "$4" "$5" || status=$?
    [ $status = 0 ] && return
    [ $status = 4 ] || fail "emulated.py left with status $status"
    [ "$2" = must ] || return 0
    echo "     attempt $attempt of $ATTEMPTS did not hold"
  done
  missed+=("$1: $3 at depth $4")
}

missed=()
for op in read write; do
  for depth in 1 16; do
    echo "--- the paper's device, a look"
    device ssd-paper
    configure 256MiB
    attempts paper look $op $depth $SECONDS_PAPER
    echo "--- forty times slower"
    device ssd-paper 'read = "2ms"' 'register = "4ms"' 'program = "36ms"' 'erase = "80ms"'
    configure 256MiB
    attempts slow must $op $depth $SECONDS_SLOW
  done
done

echo "--- wear, as an operator sees it"
device ssd-nvme 'chips = 2' 'blocks = 24' 'pages = 64' 'spare_permille = 450' 'filled_permille = 1000'
configure 4MiB
rm -f "$MEMORY/disk.img"
serve_export
timeout 60 fio --name=wear --ioengine=nbd "--uri=nbd+unix:///disk?socket=$WORK/nbd.socket" --rw=randwrite --bs=4k --size=4m \
  --io_size=64m --iodepth=8 --norandommap >"$WORK/fio.log" 2>&1 || fail "fio: $(tail -3 "$WORK/fio.log")"
timeout 20 "$WEIR" status --socket "$WORK/control.socket" | sed -n '/^Modelled/,$p'
timeout 20 "$WEIR" status --socket "$WORK/control.socket" --json >"$WORK/status.json"
stop
python3 - "$WORK/status.json" <<'PY' || fail "the wear is not as it must be"
import json, sys
device = json.load(open(sys.argv[1]))["status"]["devices"][0]
flash = device["flash"]
assert flash["programs"] == 16384, flash
assert flash["erases"] > 100 and flash["moves"] > 0 and flash["amplification"] > 1, flash
assert flash["least_worn"] <= flash["most_worn"] <= flash["erases"], flash
PY
for what in "${missed[@]}"; do echo "MISSES $what"; done
[ ${#missed[@]} = 0 ] || exit 4
