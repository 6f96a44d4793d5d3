#!/usr/bin/env bash
# Contracts and caps with other people's initiators on one modelled array, which takes its time in real
# time, and the same experiment in `weir sim` beside it.
#
#     control.sh [contracts|caps]     both without an argument
#
# contracts: `w1`, fio over NBD, keeps to its contract; `w2`, libiscsi over iSCSI, goes over it, as fast as
#            its DEPTH outstanding requests let it. Under `ta3` and `slack` w1 must keep its p99, under
#            `open` it must lose it, and the simulator must have predicted it: the mean within 5 %, p99
#            within 10 % of what the gateway measured. fio's own measurement is the column beside it.
# caps:      a volume with a cap of 500 requests a second gives 495 to 505 in every second, one with a
#            cap of 1 gives 1.
#
# The array and all rates are a quarter of the paper's interval 3 (two disks instead of eight), so that a
# small machine carries them; the load on each disk is the same. A quarter of the array shows its load in
# a quarter of the endings, so `ta3` learns of it later, and has the paper's lowest thresholds, 75 and 70 %.
# The paper's w2 sends at its rate whatever happens; a host waits once its queue is full, here and in the plan.
#
# A comparison that fails is repeated up to twice, and the output shows every attempt: SECONDS_EACH
# of random arrivals stray from their mean, and a busy machine adds its own times.
# Status 4: a line that must hold does not.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need fio iscsi-perf python3
SECONDS_EACH=${SECONDS_EACH:-30} # measured, of each live run
WARM_UP=5                        # before that
RATE=500                         # requests per second of w1
DEPTH=64                         # requests that w2 keeps outstanding
# fio waits for all requests of a job before it sleeps until the next is due, so one job with a deep
# queue sends in clumps. Many slow jobs that have one request each are a Poisson process together.
JOBS=250
ATTEMPTS=3
# The initiator in the background, which tries again for long when the gateway is gone.
OTHER=
trap 'if [ -n "$OTHER" ]; then kill "$OTHER" 2>/dev/null || true; fi; cleanup' EXIT

# What the gateway's configuration and the plan have in common. Every connection has its share of all
# requests as its window; w2's must be larger than its depth.
common() { # common POLICY
  local control="\"$1\""
  [ "$1" != ta3 ] || control='{ name = "ta3", hwm = 75, lwm = 70 }'
  cat <<TOML
[limits]
requests = 32768
[policy]
control = $control
dispatch = { name = "fifo", depth = 4096 }
[[tenant]]
name = "w1"
rows = [{ size = "4KiB", iops = 875, p99 = "41ms" }]
[[tenant]]
name = "w2"
rows = [{ size = "4KiB", iops = 375, p99 = "41ms" }]
[[backend]]
name = "array"
disks = 2
buses = 1
links = 1
TOML
}

volume() { # volume NAME LINES
  printf '[[volume]]\nname = "%s"\nfile = "%s"\nsize = "1GiB"\nio = "buffered"\n%s\n' "$1" "$WORK/$1.img" "$2"
}

# configure LUN EXPORTS: the part of a gateway's configuration that says where it is
configure() {
  printf '[iscsi]\nlisten = ["127.0.0.1:0"]\n[nbd]\nunix = ["%s"]\nexports = { %s }\n' "$WORK/nbd.socket" "$2"
  printf '[[target]]\nname = "%s"\nluns = { 0 = "%s" }\n' "$TARGET" "$1"
}

# fio_on NAME SECONDS OPTIONS...: random reads of 4 KiB; when each ended, and how long it took, is in NAME_clat.log
fio_on() {
  local name=$1 seconds=$2
  shift 2
  rm -f "$WORK/$name"_*.log # fio appends
  (cd "$WORK" && timeout $((seconds + 60)) fio --name="$name" --ioengine=nbd "--uri=nbd+unix:///$name?socket=$WORK/nbd.socket" \
    --rw=randread --norandommap --randrepeat=0 --bs=4k --size=1g --time_based --runtime="$seconds" --thread \
    --per_job_logs=0 --write_lat_log="$name" --log_avg_msec=0 "$@" >"$name.log" 2>&1) ||
    fail "fio: $(tail -3 "$WORK/$name.log")"
}

# What the gateway has recorded, request by request, in $WORK/recorded.json.
recorded() {
  "$WEIR" explain "$WORK/recording" --slowest 100000 --json >"$WORK/recorded.json"
  rm "$WORK/recording"
}

judge() { # judge ARGUMENTS: whether what must hold does
  local verdict=0
  python3 "$ROOT/conformance/control.py" "$WORK" "$@" || verdict=$?
  [ $verdict = 0 ] || [ $verdict = 4 ] || fail "control.py could not judge"
  return $verdict
}

# The plan runs ten times as long as the hosts do: it is to tell what such runs have on average.
simulate() { # simulate POLICY
  { common "$1"
    cat <<TOML
[run]
duration = "310s"
warm_up = "10s"
[[volume]]
name = "w1"
size = "1GiB"
[[volume]]
name = "w2"
size = "1GiB"
[[workload]]
name = "w1"
volume = "w1"
arrivals = "poisson"
rate = "$RATE/s"
size = "4KiB"
[[workload]]
name = "w2"
volume = "w2"
arrivals = "closed"
depth = $DEPTH
size = "4KiB"
TOML
  } >"$WORK/plan.toml"
  # It warns of contracts that nobody keeps, which is what `open` is here for.
  "$WEIR" sim "$WORK/plan.toml" --json >"$WORK/sim-$1.json" 2>"$WORK/sim.log" || fail "weir sim: $(cat "$WORK/sim.log")"
}

live() { # live POLICY
  local seconds=$((WARM_UP + SECONDS_EACH))
  { common "$1"
    configure w2 'w1 = "w1"'
    volume w1 'backend = "array"'
    volume w2 'backend = "array"'
  } >"$WORK/weir.toml"
  RECORD=$WORK/recording serve
  timeout $((seconds + 60)) iscsi-perf -r -m "$DEPTH" -b 8 -t $((seconds + 4)) "iscsi://$PORTAL/$TARGET/0" >"$WORK/w2.log" 2>&1 &
  OTHER=$!
  sleep 2
  fio_on w1 "$seconds" --numjobs=$JOBS --iodepth=1 --rate_iops=$((RATE / JOBS)) --rate_process=poisson
  wait "$OTHER" || fail "iscsi-perf: $(tail -3 "$WORK/w2.log")"
  OTHER=
  stop
  recorded
}

contracts() {
  local policy attempt
  echo "--- contracts: w1 keeps to its own, w2 does not; $SECONDS_EACH s of each"
  judge heading
  for policy in open ta3 slack; do
    simulate "$policy"
    for attempt in $(seq $ATTEMPTS); do
      live "$policy"
      if judge contract "$policy" "$attempt" "$WARM_UP" "$SECONDS_EACH"; then continue 2; fi
    done
    status=4
  done
}

caps() {
  local attempt other
  echo '--- caps: 500 and 1 a second'
  for attempt in $(seq $ATTEMPTS); do
    { configure five 'five = "five", one = "one"'
      volume five 'cap_iops = 500'
      volume one 'cap_iops = 1'
    } >"$WORK/weir.toml"
    RECORD=$WORK/recording serve
    fio_on five 12 --iodepth=64 &
    other=$!
    fio_on one 12 --iodepth=4
    wait "$other"
    stop
    recorded
    if judge caps "$attempt"; then return; fi
  done
  status=4
}

status=0
case ${1:-both} in
  contracts | caps) "$1" ;;
  both)
    caps
    contracts
    ;;
  *) fail "contracts or caps, not $1" ;;
esac
exit $status
