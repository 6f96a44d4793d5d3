#!/usr/bin/env bash
# Measures the cost of Weir in front of another target. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

usage() {
    cat <<'TEXT'
usage: bench/upstream.sh [options]
  --seconds S       length of each measurement (2)
  --repetitions R   measurements of each mode in each cell (10)
  --size MIB        size of the file (256)
  --ops OPS         which operations, a list of: read write ("read write")
  --depths LIST     commands outstanding ("1 32")
  --dir DIR         where the file goes ($TMPDIR or /tmp)
exit status: 0 measured, 2 usage, 1 anything else
TEXT
}

seconds=2 repetitions=10 size=256 ops='read write' depths='1 32' dir=${TMPDIR:-/tmp}
options 'seconds repetitions size depths' 'ops dir' '' "$@"
only "$ops" 'an operation' read write
command -v awk >/dev/null || fail "not installed: awk; on Debian: apt-get install mawk"
(cd "$root" && cargo build --quiet --release --locked) || fail "the programs do not build"
weir=$target_dir/release/weir
load=$target_dir/release/iscsi-load

WORK=$(mktemp -d "$dir/weir-upstream.XXXXXX")
. "$here/tgtd.sh"
command -v tgtd >/dev/null && command -v tgtadm >/dev/null || fail "not installed: tgt; on Debian: apt-get install tgt"
weir_pid=''
clean_up() {
    if [ -n "$weir_pid" ]; then
        kill -TERM "$weir_pid" 2>/dev/null || true
        wait "$weir_pid" 2>/dev/null || true
    fi
    tgtd_stop
    rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

start_weir() {
    local name=iqn.2026-11.org.example:weir
    cat >"$WORK/weir.toml" <<TEXT
[iscsi]
listen = ["127.0.0.1:0"]

[[upstream]]
name = "array"
target = "$TGT_NAME"
lun = 1
portals = ["${TGT_PORTALS[0]}"]

[[volume]]
name = "disk0"
upstream = "array"

[[target]]
name = "$name"
luns = { 0 = "disk0" }
TEXT
    "$weir" serve "$WORK/weir.toml" --json >"$WORK/weir.out" 2>"$WORK/weir.log" &
    weir_pid=$!
    await_weir "$WORK/weir" "$weir_pid"
    weir_url=127.0.0.1:$port/$name/0
}

# The number of a key in a line of flat JSON.
field() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }

# measure MODE OP DEPTH SEED: appends "IOPS MEAN P50 P99 CPU" to the file of the cell; CPU is Weir's.
measure() {
    local url=${TGT_PORTALS[1]}/$TGT_NAME/1 line
    [ "$1" = direct ] || url=$weir_url
    set -- "$1" "$2" "$3" "$4" --url "$url" --depth "$3" --seconds "$seconds" --seed "$4" --server-pid "$weir_pid"
    [ "$2" = read ] || set -- "$@" --write
    line=$("$load" "${@:5}") || fail "$1, $2 at depth $3: the load failed: $line"
    echo "$(field "$line" iops) $(field "$line" mean_us) $(field "$line" p50_us) $(field "$line" p99_us)" \
        "$(field "$line" server_cpu_us_per_io)" >>"$WORK/$2.$3.$1"
    [ "$2" = read ] || sync "$WORK/disk.img"
}

# Median of the lines of standard input.
median() {
    sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# of CELL MODE COLUMN: its median
of() { awk -v c="$3" '{ print $c }' "$WORK/$1.$2" | median; }

# pairs CELL COLUMN EXPRESSION: the median of EXPRESSION over consecutive measurements, `w` through Weir and `d`
# directly
pairs() {
    paste -d' ' "$WORK/$1.weir" "$WORK/$1.direct" |
        awk -v c="$2" "{ n = NF / 2; w = \$c; d = \$(n + c); print $3 }" | median
}

head -c "${size}M" /dev/urandom >"$WORK/disk.img"
tgtd_start "$WORK/disk.img"
start_weir
echo "weir $("$weir" --version | awk '{ print $2 }'), tgtd $(tgtd --version 2>/dev/null), $(nproc) cores," \
    "load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "random 4 KiB on $size MiB in the page cache, one session, one path, $repetitions x $seconds s each, alternating"
echo
printf '%-5s %5s | %9s %9s %6s | %8s %8s %9s | %8s %8s | %8s\n' op depth direct/s weir/s ratio \
    p50-us p50-us 'added-us' p99-us p99-us cpu-us
printf '%-5s %5s | %9s %9s %6s | %8s %8s %9s | %8s %8s | %8s\n' '' '' '' '' '' direct weir '(mean)' direct weir weir
for op in $ops; do
    for depth in $depths; do
        cat "$WORK/disk.img" >/dev/null
        for repetition in $(seq "$repetitions"); do
            # The first measurement affects the second, so the order alternates, too.
            order='direct weir'
            [ $((repetition % 2)) -eq 1 ] || order='weir direct'
            for mode in $order; do
                measure "$mode" "$op" "$depth" "$repetition"
            done
        done
        cell=$op.$depth
        printf '%-5s %5s | %9.0f %9.0f %6.2f | %8.1f %8.1f %9.1f | %8.1f %8.1f | %8.2f\n' "$op" "$depth" \
            "$(of "$cell" direct 1)" "$(of "$cell" weir 1)" "$(pairs "$cell" 1 'w / d')" \
            "$(of "$cell" direct 3)" "$(of "$cell" weir 3)" "$(pairs "$cell" 2 'w - d')" \
            "$(of "$cell" direct 4)" "$(of "$cell" weir 4)" "$(of "$cell" weir 5)"
    done
done
