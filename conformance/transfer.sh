#!/usr/bin/env bash
# Which reply goes first: a host that reads 4 KiB, one at a time, beside one that reads 1 MiB, sixteen at once, over a
# link of 50 Mbit/s, and the same in `weir sim` beside it. Needs root: the link is between two network namespaces.
#
#     transfer.sh [CASE...]     link idle; both without an argument
#
# link     the gateway is told what the link carries (`[[link]]`), so that replies wait in its line: under `fifo`, `dqbs` and
#          `slack`, the mean and the 99th percentile of the small reads and the throughput of the large ones are those of
#          `weir sim` within FIDELITY per cent. Beside it what happens without that table, each connection a line of its own
#          and the network's queue the only one that they share
# idle     over loopback, 4 KiB at depth 32: operations a second under `slack` against `fifo`, in turns
#
# A run that misses is repeated up to twice, and the output shows every attempt: a busy machine delays the hosts.
# Status 4: what must hold does not.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need python3 ip tc
LOAD=${LOAD:-$ROOT/target/release/iscsi-load}
[ -x "$LOAD" ] || fail "$LOAD is missing: cargo build --release -p iscsi-load"
FIDELITY=${FIDELITY:-10}
SECONDS_EACH=${SECONDS_EACH:-40}
ROUNDS=${ROUNDS:-9}
# 50 Mbit/s of Ethernet frames are 5.98 MB/s of TCP payload; the shaper is late now and then.
BANDWIDTH=5.6MB/s
# Between a small read and the next, in microseconds: else microseconds would decide whether one comes before or behind the next part of a
# large reply.
THINK=4000
NEAR=weir-near-$$ FAR=weir-far-$$
HOSTS=()
trap 'for host in "${HOSTS[@]}"; do kill "$host" 2>/dev/null || true; done; ip netns del $NEAR 2>/dev/null || true
  ip netns del $FAR 2>/dev/null || true; cleanup' EXIT

# Two namespaces; what leaves the gateway's is shaped, with a queue of an eighth of a second.
network() {
  local space
  ip netns add "$NEAR"
  ip netns add "$FAR"
  ip link add near netns "$NEAR" type veth peer name far netns "$FAR"
  for space in "$NEAR" "$FAR"; do ip -n "$space" link set lo up; done
  ip -n "$NEAR" address add 10.0.0.1/24 dev near
  ip -n "$FAR" address add 10.0.0.2/24 dev far
  ip -n "$NEAR" link set near up
  ip -n "$FAR" link set far up
  # It fills the queue, as the usual ones do, and is allowed everywhere.
  ip netns exec "$NEAR" sysctl -q net.ipv4.tcp_congestion_control=reno
  ip netns exec "$NEAR" tc qdisc add dev near root tbf rate 50mbit burst 16kb limit 780kb
}

# What the gateway's configuration and the plan have in common.
common() { # common POLICY
  printf '[policy]\ntransfer = %s\n' "$1"
}

configuration() { # configuration ADDRESS
  local name
  printf '[iscsi]\nlisten = ["%s"]\n' "$1"
  for name in small large; do
    printf '[[volume]]\nname = "%s"\nfile = "%s/%s.img"\nsize = "64MiB"\nio = "buffered"\n' "$name" "$WORK" "$name"
    printf '[[target]]\nname = "%s-%s"\nluns = { 0 = "%s" }\n' "$TARGET" "$name" "$name"
  done
}

host() { # host NAME OPTIONS...: in the background; its report is NAME.json
  local name=$1
  shift
  timeout $((SECONDS_EACH + 60)) ip netns exec "$FAR" "$LOAD" --url "$PORTAL/$TARGET-$name/0" --seconds "$SECONDS_EACH" "$@" \
    >"$WORK/$name.json" 2>"$WORK/$name.log" &
  HOSTS+=($!)
}

simulate() { # simulate POLICY
  { common "$1"
    cat <<TOML
[limits]
link_window = 1
[run]
duration = "${SECONDS_EACH}s"
warm_up = "5s"
drain = false
[[backend]]
name = "memory"
model = "fixed"
service = "100us"
servers = 64
[[link]]
name = "front"
bandwidth = "$BANDWIDTH"
[[volume]]
name = "small"
size = "64MiB"
backend = "memory"
[[volume]]
name = "large"
size = "64MiB"
backend = "memory"
[[workload]]
name = "small"
tenant = "small"
volume = "small"
arrivals = "closed"
depth = 1
think = "${THINK}us"
size = "4KiB"
[[workload]]
name = "large"
tenant = "large"
volume = "large"
arrivals = "closed"
depth = 16
size = "1MiB"
TOML
  } >"$WORK/plan.toml"
  "$WEIR" sim "$WORK/plan.toml" --json >"$WORK/sim.json" 2>"$WORK/sim.log" || fail "weir sim: $(cat "$WORK/sim.log")"
}

live() { # live POLICY [LINK]: over the network
  { common "$1"
    configuration 10.0.0.1:3260
    [ -z "${2:-}" ] || printf '[[link]]\nname = "front"\nlisten = ["10.0.0.1:3260"]\nbandwidth = "%s"\n' "$BANDWIDTH"
  } >"$WORK/weir.toml"
  serve ip netns exec "$NEAR"
  host large --depth 16 --block 1048576
  host small --think $THINK
  for one in "${HOSTS[@]}"; do wait "$one" || fail "a host failed: $(cat "$WORK"/{small,large}.log)"; done
  HOSTS=()
  stop
}

judge() { # judge NAME SIMULATED
  python3 - "$WORK" "$1" "$2" "$FIDELITY" <<'PYTHON'
import json, sys
work, name, simulated, fidelity = sys.argv[1], sys.argv[2], sys.argv[3] == "yes", float(sys.argv[4])
small, large = (json.load(open(f"{work}/{one}.json")) for one in ("small", "large"))
found = [small["mean_us"] / 1e3, small["p99_us"] / 1e3, small["max_us"] / 1e3, large["mb_per_s"]]
print(f"{name:<28}" + "".join(f"{one:12.2f}" for one in found) + f"{small['ios']:10d}", flush=True)
if simulated:
    tenants = {one["name"]: one for one in json.load(open(f"{work}/sim.json"))["results"]["tenants"]}
    few, many = tenants["small"], tenants["large"]
    told = [few["response"][one] / 1e6 for one in ("mean_ns", "p99_ns", "max_ns")] + [many["requests_per_second"] * 1.048576]
    off = [100 * (one / other - 1) for one, other in zip(found, told)]
    print(f"{'  simulated':<28}" + "".join(f"{one:12.2f}" for one in told), flush=True)
    print(f"{'  off':<28}" + "".join(f"{one:+11.1f}%" for one in off), flush=True)
    # One read decides the slowest.
    if max(abs(one) for one in off[:2] + off[3:]) > fidelity:
        print(f"  more than {fidelity:g} % off", flush=True)
        sys.exit(4)
PYTHON
}

over_link() {
  local policy chosen attempt verdict
  network
  printf '%-28s%12s%12s%12s%12s%10s\n' '' 'mean, ms' 'p99, ms' 'max, ms' 'MB/s' 'reads'
  live '"fifo"'
  judge "a line for each connection" no
  for policy in fifo dqbs slack 'slack, chunk = "16KiB"' 'slack, budget = "1MiB"'; do
    chosen="{ name = \"${policy%%, *}\"${policy#"${policy%%, *}"} }"
    simulate "$chosen"
    for attempt in 1 2 3; do
      live "$chosen" link
      verdict=0
      judge "$policy" yes || verdict=$?
      [ $verdict = 0 ] || [ $verdict = 4 ] || fail "the run could not be judged"
      if [ $verdict = 0 ]; then continue 2; fi
    done
    status=4
  done
  ip netns del "$NEAR"
  ip netns del "$FAR"
}

idle() {
  local round policy order
  for round in $(seq "$ROUNDS"); do
    # Whoever is second has it neither easier nor harder in the end.
    if [ $((round % 2)) = 0 ]; then order='slack fifo'; else order='fifo slack'; fi
    for policy in $order; do
      { common "\"$policy\""
        configuration 127.0.0.1:0
      } >"$WORK/weir.toml"
      serve
      "$LOAD" --url "$PORTAL/$TARGET-small/0" --depth 32 --seconds 2 --server-pid "$PID" >>"$WORK/idle.$policy"
      stop
    done
  done
  python3 - "$WORK" <<'PYTHON'
import json, statistics, sys
runs = {policy: [json.loads(line) for line in open(f"{sys.argv[1]}/idle.{policy}")] for policy in ("fifo", "slack")}
for what, unit in (("iops", "operations a second"), ("server_cpu_us_per_io", "us of the gateway's CPU time each")):
    ratios = sorted(slack[what] / fifo[what] for slack, fifo in zip(runs["slack"], runs["fifo"]))
    middle = statistics.median(one[what] for one in runs["fifo"])
    print(f"4 KiB, depth 32: fifo {middle:.5g} {unit}; slack {statistics.median(ratios):.3f} times that, "
          f"from {ratios[0]:.3f} to {ratios[-1]:.3f} in {len(ratios)} pairs", flush=True)
PYTHON
}

status=0
cases=("$@")
[ $# -gt 0 ] || cases=(link idle)
for case in "${cases[@]}"; do
  case $case in
    link) over_link ;;
    idle) idle ;;
    *) fail "link or idle, not $case" ;;
  esac
done
exit $status
