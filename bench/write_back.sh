#!/usr/bin/env bash
# Measures write-back caching and the read cache before a remote upstream. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

usage() {
    cat <<'TEXT'
usage: bench/write_back.sh [options]
  --round-trip MS   to the upstream, in milliseconds (20)
  --link MB         bandwidth to the upstream for the reads, in 10^6 bytes per second (20)
  --seconds S       length of each measurement (2)
  --repetitions R   measurements of each mode in each cell (5)
  --log MIB         size of the log (2048)
  --dir DIR         folder for the files ($TMPDIR or /tmp)
exit status: 0 measured, 2 usage, 1 other errors
TEXT
}

round_trip=20 link=20 seconds=2 repetitions=5 log=2048 dir=${TMPDIR:-/tmp}
options 'round_trip link seconds repetitions log' 'dir' '' "$@"
command -v python3 >/dev/null || fail "not installed: python3"
(cd "$root" && cargo build --quiet --release --locked -p weir &&
    cargo build --quiet --release --locked -p iscsi-load) || fail "the programs do not build"
weir=$target_dir/release/weir
load=$target_dir/release/iscsi-load
export PYTHONDONTWRITEBYTECODE=1

WORK=$(mktemp -d "$dir/weir-write-back.XXXXXX")
. "$here/tgtd.sh"
command -v tgtd >/dev/null && command -v tgtadm >/dev/null || fail "not installed: tgt; on Debian: apt-get install tgt"
weir_pid='' proxy_pid=''
clean_up() {
    local pid
    for pid in $weir_pid $proxy_pid; do
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    tgtd_stop
    rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The units of the upstream: for writes with the log, through the gateway without a log, and directly; for reads from
# the upstream, sequential and random; and for reads that fit into the cache.
units=(logged through direct far fits scattered)
sizes=(256 256 256 256 16 256)
start_far() {
    local number
    for number in "${!units[@]}"; do head -c "${sizes[number]}M" /dev/urandom >"$WORK/${units[number]}.img"; done
    tgtd_start "$WORK/logged.img"
    for number in 1 2 3 4 5; do
        tgt --mode logicalunit --op new --tid 1 --lun $((number + 1)) --backing-store "$WORK/${units[number]}.img"
    done
    python3 "$root/conformance/harness/proxy.py" "$WORK/proxy.socket" "${TGT_PORTALS[0]}" >"$WORK/ports" &
    proxy_pid=$!
    for _ in $(seq 100); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
    far=127.0.0.1:$(cat "$WORK/ports")
}

# line BYTES-PER-SECOND: sets the bandwidth to the upstream in each direction, 0 without a limit
line() {
    python3 -c 'import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(f"line 0 {sys.argv[2]} {float(sys.argv[3]) / 2000}\n".encode())
one.recv(100)' "$WORK/proxy.socket" "$1" "$round_trip"
}

start_weir() {
    local number
    {
        printf '[iscsi]\nlisten = ["127.0.0.1:0"]\n[control]\nsocket = "%s"\n' "$WORK/control.socket"
        printf '[cache]\nsize = "64MiB"\n[policy]\nprefetch = "adaptive"\n'
        for number in 0 1 3 4 5; do
            printf '[[upstream]]\nname = "%s"\ntarget = "%s"\nlun = %d\nportals = ["%s"]\n' \
                "u$number" "$TGT_NAME" $((number + 1)) "$far"
            printf '[[volume]]\nname = "%s"\nupstream = "%s"\n' "${units[number]}" "u$number"
            if [ "$number" = 0 ]; then
                printf 'log = "%s"\nlog_size = "%dMiB"\nstate = "%s"\n' "$WORK/log" "$log" "$WORK/state"
            fi
        done
        printf '[[target]]\nname = "%s"\nluns = { 0 = "logged", 1 = "through", 3 = "far", 4 = "fits", 5 = "scattered" }\n' "$name"
    } >"$WORK/weir.toml"
    "$weir" serve "$WORK/weir.toml" --json >"$WORK/weir.out" 2>"$WORK/weir.log" &
    weir_pid=$!
    await_weir "$WORK/weir" "$weir_pid"
    portal=127.0.0.1:$port
}
name=iqn.2026-11.org.example:weir

# The number of a key in a line of flat JSON.
field() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }

# measure CELL URL WORD...: appends "IOPS P50 P99" to the file of the cell
measure() {
    local cell=$1 url=$2 said
    said=$("$load" --url "$url" --seconds "$seconds" "${@:3}") || fail "$cell: the load failed: $said"
    echo "$(field "$said" iops) $(field "$said" p50_us) $(field "$said" p99_us)" >>"$WORK/$cell"
}

# of CELL COLUMN: its median
of() {
    awk -v c="$2" '{ print $c }' "$WORK/$1" | sort -g |
        awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

fill() {
    "$weir" volume status logged --json --socket "$WORK/control.socket" | sed -n 's/.*"fill": *\([0-9.e-]*\).*/\1/p'
}

start_far
line 0
start_weir
echo "weir $("$weir" --version | awk '{ print $2 }'), tgtd $(tgtd --version 2>/dev/null), $(nproc) cores," \
    "load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "round trip to the upstream $round_trip ms; random 4 KiB, one session, $repetitions x $seconds s each, alternating"
echo
printf '%-14s %-8s %5s | %9s %9s %9s\n' what mode depth IOPS p50-us p99-us
declare -A url=([log]=$portal/$name/0 [through]=$portal/$name/1 [direct]=$far/$TGT_NAME/3)
for depth in 1 32; do
    for repetition in $(seq "$repetitions"); do
        for mode in direct through log; do
            measure "write.$depth.$mode" "${url[$mode]}" --write --depth "$depth" --seed "$repetition"
        done
    done
    for mode in direct through log; do
        cell=write.$depth.$mode
        printf '%-14s %-8s %5s | %9.0f %9.0f %9.0f\n' write "$mode" "$depth" "$(of "$cell" 1)" "$(of "$cell" 2)" "$(of "$cell" 3)"
    done
done
filled=$(fill)
python3 "$here/write_back.py" "$portal/$name/4" "$WORK/proxy.socket" all $((16 << 11)) 8 0 >/dev/null
for depth in 1 32; do
    for repetition in $(seq "$repetitions"); do
        measure "hit.$depth" "$portal/$name/4" --depth "$depth" --seed "$repetition"
    done
    printf '%-14s %-8s %5s | %9.0f %9.0f %9.0f\n' 'read, a hit' '' "$depth" \
        "$(of "hit.$depth" 1)" "$(of "hit.$depth" 2)" "$(of "hit.$depth" 3)"
done
echo
awk -v f="$filled" -v l="$log" 'BEGIN {
    printf "the log of %d MiB was %.0f %% full after the writes%s\n", l, f * 100,
        (f >= 0.75) ? ": writes were paced, the log has to be larger" : "" }'
line $((link * 1000000))
read -r bytes took _ _ upstream < <(python3 "$here/write_back.py" "$portal/$name/3" "$WORK/proxy.socket" sequential $((256 << 11)) 1 10)
awk -v b="$bytes" -v t="$took" -v l="$link" -v u="$upstream" 'BEGIN {
    printf "sequential reads of 64 KiB at depth 1: %.2f MB/s, %.1f %% of a link of %d MB/s; %.3f bytes fetched per byte read\n",
        b / t / 1e6, b / t / l / 1e4, l, u / b }'
read -r bytes took _ _ upstream < <(python3 "$here/write_back.py" "$far/$TGT_NAME/4" "$WORK/proxy.socket" sequential $((256 << 11)) 1 5)
awk -v b="$bytes" -v t="$took" -v l="$link" 'BEGIN {
    printf "the same directly: %.2f MB/s, %.1f %%\n", b / t / 1e6, b / t / l / 1e4 }'
read -r bytes took _ _ upstream < <(python3 "$here/write_back.py" "$portal/$name/5" "$WORK/proxy.socket" random $((256 << 11)) 16 10)
awk -v b="$bytes" -v t="$took" -v u="$upstream" 'BEGIN {
    printf "random reads of 4 KiB at depth 16: %.0f/s; %.3f bytes from the upstream per byte read\n", b / 4096 / t, u / b }'
