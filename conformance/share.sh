#!/usr/bin/env bash
# Weighted shares of one backend's time, with three hosts over iSCSI, and the same experiment in `weir sim` beside it.
#
#     share.sh [CASE...]     reads mixed flash bursts returns reload; all without an argument
#
# Three tenants, weights 4, 2 and 1, on one modelled device, which takes its time in real time:
#
# reads    each reads 4 KiB, with 128 outstanding, from a device that does four at once
# mixed    the first reads 4 KiB, the second writes 64 KiB, the third does both, on a disk where the large ones take
#          three times as long
# flash    the first reads and the second writes 4 KiB, the third does both, on emulated flash of four chips, where a write
#          takes seven times as long and nobody but the chips knows which of them is busy
# bursts   as reads, but the second comes for two seconds and goes for one and a half, again and again: what it leaves is the
#          others' by their weights, and while it is there it has its own
# returns  as reads, but the second leaves for seconds and comes back: it has its share from the first seconds on,
#          and no more
# reload   as reads; then a new configuration turns the weights round, without a restart
#
# The gateway's own account of service times must be within SLACK per cent of what the weights say, with each policy that
# charges time. For reads the hosts' own counts must say the same, as all operations cost the same there; for flash, their
# counts by what the chips take for a read and a write. `weir sim` with the same plan must give each host the same rate
# within FIDELITY per cent, in reads, mixed and flash.
#
# A case that fails is repeated up to twice, and the output shows every attempt: a busy machine delays the hosts.
# Status 4: a line that must hold does not.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need python3
LOAD=${LOAD:-$ROOT/target/release/iscsi-load}
[ -x "$LOAD" ] || fail "$LOAD is missing: cargo build --release -p iscsi-load"
SECONDS_EACH=${SECONDS_EACH:-10}
# So many outstanding last a fifth of a second: as long as a busy machine lets a host wait.
DEPTH=128
SLACK=${SLACK:-3}
FIDELITY=${FIDELITY:-5}
POLICIES=${POLICIES:-fog fair-time}
ATTEMPTS=3
HOSTS=()
trap 'for host in "${HOSTS[@]}"; do kill "$host" 2>/dev/null || true; done; cleanup' EXIT

# What the gateway's configuration and the plan have in common.
common() { # common POLICY CASE
  local servers=4 device='model = "fixed"
service = "4ms"
servers = 4'
  if [ "$2" = mixed ]; then
    servers=1
    device='model = "array-m1"
disks = 1
buses = 1
links = 1
mean_service = "2ms"
media = "15MB/s"
bus = "100GB/s"
link = "100GB/s"'
  fi
  if [ "$2" = flash ]; then
    servers=0
    device='model = "ssd-paper"
read = "200us"
register = "400us"
program = "3600us"
erase = "8ms"'
  fi
  local work=
  # The depth bounds what is at the device, not the work: twice as many as it does at once, so that it has something
  # to do while a busy machine lets the gateway wait.
  [ "$1" != fair-time ] || work=', work = "1s"'
  cat <<TOML
[policy]
dispatch = { name = "$1", depth = $((servers > 0 ? 2 * servers : 16)), servers = $servers$work }
[[tenant]]
name = "one"
share = 4
[[tenant]]
name = "two"
share = 2
[[tenant]]
name = "three"
share = 1
[[backend]]
name = "device"
$device
TOML
}

live() { # live POLICY CASE: a gateway that serves the three volumes
  local name
  { common "$1" "$2"
    printf '[iscsi]\nlisten = ["127.0.0.1:0"]\n[control]\nsocket = "%s/socket"\n' "$WORK"
    for name in one two three; do
      printf '[[volume]]\nname = "%s"\nfile = "%s/%s.img"\nsize = "64MiB"\nio = "buffered"\nbackend = "device"\n' "$name" "$WORK" "$name"
      printf '[[target]]\nname = "%s-%s"\nluns = { 0 = "%s" }\n' "$TARGET" "$name" "$name"
    done
  } >"$WORK/weir.toml"
  serve
  python3 "$ROOT/conformance/share.py" watch "$WORK/socket" >"$WORK/samples" 2>"$WORK/watch.log" &
  HOSTS+=($!)
}

host() { # host TENANT SECONDS OPTIONS...: in the background; its report is a line of TENANT.json
  local name=$1 seconds=$2
  shift 2
  timeout $((seconds + 60)) "$LOAD" --url "$PORTAL/$TARGET-$name/0" --depth $DEPTH --seconds "$seconds" "$@" >>"$WORK/$name.json" 2>>"$WORK/$name.log" &
  HOSTS+=($!)
}

settle() { # waits for all hosts, of which the first is the one that watches
  local watcher=${HOSTS[0]} other
  for other in "${HOSTS[@]:1}"; do
    wait "$other" || fail "a host failed: $(cat "$WORK"/*.log | tail -3)"
  done
  kill "$watcher" 2>/dev/null || fail "nobody watched: $(cat "$WORK/watch.log")"
  wait "$watcher" 2>/dev/null || true
  HOSTS=()
  stop
}

mixed_hosts() { # mixed_hosts SECONDS BYTES: that a write has
  host one "$1"
  host two "$1" --depth 32 --block "$2" --write
  host three "$1" --depth 16
  host three "$1" --depth 16 --block "$2" --write
}

simulate() { # simulate POLICY CASE
  local name
  { common "$1" "$2"
    printf '[run]\nduration = "%ss"\nwarm_up = "2s"\ndrain = false\n' $((SECONDS_EACH + 2))
    for name in one two three; do
      printf '[[volume]]\nname = "%s"\nsize = "64MiB"\nbackend = "device"\n' "$name"
    done
    load() { # load TENANT DEPTH SIZE READS
      printf '[[workload]]\nname = "%s-%s-%s"\ntenant = "%s"\nvolume = "%s"\narrivals = "closed"\ndepth = %s\nsize = "%s"\nreads = %s\n' \
        "$1" "$3" "$4" "$1" "$1" "$2" "$3" "$4"
    }
    if [ "$2" = flash ]; then
      load one $DEPTH 4KiB 1
      load two 32 4KiB 0
      load three 16 4KiB 1
      load three 16 4KiB 0
    elif [ "$2" = mixed ]; then
      load one $DEPTH 4KiB 1
      load two 32 64KiB 0
      load three 16 4KiB 1
      load three 16 64KiB 0
    else
      for name in one two three; do load "$name" $DEPTH 4KiB 1; done
    fi
  } >"$WORK/plan.toml"
  "$WEIR" sim "$WORK/plan.toml" --json >"$WORK/sim.json" 2>"$WORK/sim.log" || fail "weir sim: $(cat "$WORK/sim.log")"
}

judge() { # judge CASE POLICY ATTEMPT: whether what must hold does
  local verdict=0
  python3 "$ROOT/conformance/share.py" judge "$WORK" "$@" "$SLACK" "$FIDELITY" || verdict=$?
  [ $verdict = 0 ] || [ $verdict = 4 ] || fail "share.py could not judge"
  return $verdict
}

run() { # run CASE POLICY
  local seconds=$SECONDS_EACH round
  rm -f "$WORK"/*.json
  live "$2" "$1"
  case $1 in
    reads)
      for name in one two three; do host "$name" "$seconds"; done
      simulate "$2" reads
      ;;
    mixed)
      mixed_hosts "$seconds" 65536
      simulate "$2" mixed
      ;;
    flash)
      mixed_hosts "$seconds" 4096
      simulate "$2" flash
      ;;
    bursts)
      host one "$seconds"
      host three "$seconds"
      # Half a second of warm-up, one that is measured, and half of one until what is outstanding has ended.
      for round in $(seq $((2 * seconds / 7))); do
        host two 1
        sleep 3.5
      done
      ;;
    returns)
      host one $((2 * seconds))
      host three $((2 * seconds))
      host two $((seconds / 2))
      sleep $((seconds / 2 + 4))
      host two $((seconds / 2))
      ;;
    reload)
      for name in one two three; do host "$name" $((2 * seconds)); done
      sleep "$seconds"
      sed -i 's/^share = 4$/share = 0.5/' "$WORK/weir.toml"
      kill -HUP "$PID"
      ;;
    *) fail "reads, mixed, flash, bursts, returns or reload, not $1" ;;
  esac
  settle
}

status=0
cases=("$@")
[ $# -gt 0 ] || cases=(reads mixed flash bursts returns reload)
python3 "$ROOT/conformance/share.py" heading
for case in "${cases[@]}"; do
  for policy in $POLICIES; do
    for attempt in $(seq $ATTEMPTS); do
      run "$case" "$policy"
      if judge "$case" "$policy" "$attempt"; then continue 2; fi
    done
    status=4
  done
done
exit $status
