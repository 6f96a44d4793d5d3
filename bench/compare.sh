#!/usr/bin/env bash
# Compares Weir with tgtd on one file in one run. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

# The targets at TARGET_DEPTH in every cell, as a multiple of tgtd.
readonly TARGET_DEPTH=32 TARGET_IOPS=1.5 TARGET_CPU=0.6667

usage() {
    cat <<'TEXT'
usage: bench/compare.sh [options]
  --seconds S       length of each measurement (3)
  --repetitions R   measurements of each server in each cell (3)
  --size MIB        size of the file (256)
  --dir DIR         where the file goes; direct I/O needs a real file system ($TMPDIR or /tmp)
  --io MODES        which modes, a list of: buffered direct ("buffered direct")
  --ops OPS         which operations, a list of: read write ("read write")
  --depths LIST     commands outstanding per session ("1 32")
  --sessions LIST   sessions ("1 4")
  --direct-writes   also measure direct writes
  --json FILE       also write the results there, as one object
  --weir PROGRAM    the program to measure (target/release/weir, built if need be)
  --load PROGRAM    the load generator (target/release/iscsi-load, built if need be)
exit status: 0 targets met, 4 targets not met, 2 usage, 1 other errors
TEXT
}

seconds=3 repetitions=3 size=256 dir=${TMPDIR:-/tmp} direct_writes=no json='' weir='' load=''
io='buffered direct' ops='read write' depths='1 32' sessions='1 4'
options 'seconds repetitions size depths sessions' 'dir io ops json weir load' direct_writes "$@"
only "$io" 'a mode' buffered direct
only "$ops" 'an operation' read write
modes=$io session_counts=$sessions

# --- requirements -----------------------------------------------------------------------------

PATH=$PATH:/usr/sbin:/sbin
missing=''
command -v tgtd >/dev/null && command -v tgtadm >/dev/null || missing="$missing tgt"
command -v ss >/dev/null || missing="$missing iproute2"
command -v awk >/dev/null || missing="$missing mawk"
[ -z "$missing" ] || fail "not installed:$missing; on Debian: apt-get install$missing"
if [ -z "$weir" ] || [ -z "$load" ]; then
    command -v cargo >/dev/null || fail "cargo is not installed; see https://rustup.rs, or use --weir and --load"
fi
if [ -z "$weir" ]; then
    (cd "$root" && cargo build --quiet --release --locked) || fail "weir does not build"
    weir=$target_dir/release/weir
fi
if [ -z "$load" ]; then
    (cd "$root" && cargo build --quiet --release --locked) ||
        fail "the load generator does not build"
    load=$target_dir/release/iscsi-load
fi
for program in "$weir" "$load"; do
    [ -x "$program" ] || fail "$program is not an executable file"
done

# --- servers ----------------------------------------------------------------------------------

work=$(mktemp -d "$dir/weir-compare.XXXXXX")
disk=$work/disk.img
weir_pid='' tgtd_pid=''
export TGT_IPC_SOCKET=$work/tgt.ctl
readonly CONTROL=7 TGT_NAME=iqn.2026-11.org.example:tgt WEIR_NAME=iqn.2026-11.org.example:weir

tgt() { tgtadm -C "$CONTROL" --lld iscsi "$@"; }

# Waits until a process that this script started has ended; kills it after a while.
end_of() {
    local pid=$1 i
    for i in $(seq 50); do
        kill -0 "$pid" 2>/dev/null || break
        [ "$i" -lt 50 ] || kill -9 "$pid" 2>/dev/null || true
        sleep 0.1
    done
    wait "$pid" 2>/dev/null || true
}

stop_weir() {
    [ -n "$weir_pid" ] || return 0
    local pid=$weir_pid
    weir_pid=''
    kill -TERM "$pid" 2>/dev/null || true
    end_of "$pid"
}

# tgtd ignores SIGTERM; it ends on a command on its control socket.
stop_tgtd() {
    [ -n "$tgtd_pid" ] || return 0
    local pid=$tgtd_pid
    tgtd_pid=''
    tgt --mode target --op delete --force --tid 1 >/dev/null 2>&1 || true
    tgtadm -C "$CONTROL" --mode system --op delete >/dev/null 2>&1 || true
    end_of "$pid"
}

clean_up() {
    stop_weir
    stop_tgtd
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

start_tgtd() {
    local tries port
    for tries in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 12000))
        if [ -n "$(ss -Hltn "sport = :$port")" ]; then
            continue
        fi
        tgtd -f -C "$CONTROL" --iscsi portal="127.0.0.1:$port" >"$work/tgtd.log" 2>&1 &
        tgtd_pid=$!
        for _ in $(seq 50); do
            kill -0 "$tgtd_pid" 2>/dev/null || break
            if [ -n "$(ss -Hltn "sport = :$port")" ] && tgt --mode target --op show >/dev/null 2>&1; then
                tgtd_url=127.0.0.1:$port/$TGT_NAME
                break 2
            fi
            sleep 0.1
        done
        stop_tgtd
    done
    [ -n "$tgtd_pid" ] || fail "tgtd does not start (try $tries): $(tail -n 3 "$work/tgtd.log")"
    tgt --mode target --op new --tid 1 --targetname "$TGT_NAME"
    tgt --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$disk"
    tgt --mode logicalunit --op new --tid 1 --lun 2 --backing-store "$disk" --bsoflags direct
    tgt --mode target --op bind --tid 1 --initiator-address ALL
}

start_weir() {
    local mode=$1
    cat >"$work/weir.toml" <<TEXT
[iscsi]
listen = ["127.0.0.1:0"]

[[volume]]
name = "disk0"
file = "$disk"
io = "$mode"

[[target]]
name = "$WEIR_NAME"
luns = { 0 = "disk0" }
TEXT
    "$weir" serve "$work/weir.toml" --json >"$work/weir.out" 2>"$work/weir.log" &
    weir_pid=$!
    await_weir "$work/weir" "$weir_pid"
    weir_url=127.0.0.1:$port/$WEIR_NAME/0
}

# --- measuring --------------------------------------------------------------------------------

# For buffered I/O the whole file is in the page cache; for direct I/O no part of it, because direct writes have to
# invalidate cached pages.
warm_or_drop() {
    if [ "$1" = direct ]; then
        dd if="$disk" iflag=nocache count=0 status=none
    else
        cat "$disk" >/dev/null
    fi
}

# The number of a key in a line of flat JSON.
field() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }

# measure SERVER MODE OP DEPTH SESSIONS SEED: appends "IOPS CPU P50 P99" to the file of the cell.
measure() {
    local server=$1 mode=$2 op=$3 depth=$4 sessions=$5 seed=$6 url pid line
    if [ "$server" = weir ]; then
        url=$weir_url pid=$weir_pid
    else
        pid=$tgtd_pid
        if [ "$mode" = direct ]; then url=$tgtd_url/2; else url=$tgtd_url/1; fi
    fi
    set -- --url "$url" --depth "$depth" --sessions "$sessions" --seconds "$seconds" \
        --seed "$seed" --server-pid "$pid"
    [ "$op" = read ] || set -- "$@" --write
    line=$("$load" "$@") || fail "$server, $mode $op at depth $depth: the load failed: $line"
    echo "$(field "$line" iops) $(field "$line" server_cpu_us_per_io)" \
        "$(field "$line" p50_us) $(field "$line" p99_us)" \
        >>"$work/$mode.$op.$depth.$sessions.$server"
    # Dirty pages of one server must not be written back during the measurement of the other.
    [ "$op" = read ] || sync "$disk"
}

echo "weir    $weir"
echo "tgtd    $(tgtd --version 2>/dev/null || echo unknown)"
echo "host    $(uname -sr), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)," \
    "$(stat -f -c %T "$dir") below $dir"
echo "cells   random 4 KiB on $size MiB, $repetitions x $seconds s each, alternating"

head -c "${size}M" /dev/urandom >"$disk"
sync "$disk"
start_tgtd
cells=()
for mode in $modes; do
    start_weir "$mode"
    for op in $ops; do
        [ "$mode $op" != 'direct write' ] || [ "$direct_writes" = yes ] || continue
        for depth in $depths; do
            for sessions in $session_counts; do
                cells+=("$mode $op $depth $sessions")
                [ ! -t 2 ] || printf '\r\033[K%s %s, depth %s, %s sessions' \
                    "$mode" "$op" "$depth" "$sessions" >&2
                warm_or_drop "$mode"
                for repetition in $(seq "$repetitions"); do
                    # The first measurement affects the second, so the order alternates, too.
                    order='weir tgtd'
                    [ $((repetition % 2)) -eq 1 ] || order='tgtd weir'
                    for server in $order; do
                        measure "$server" "$mode" "$op" "$depth" "$sessions" "$repetition"
                    done
                done
            done
        done
    done
    stop_weir
done
[ ! -t 2 ] || printf '\r\033[K' >&2
stop_tgtd

# --- report -----------------------------------------------------------------------------------

# Median of column $2 of file $1.
median() {
    awk -v c="$2" '{ print $c }' "$1" | sort -g |
        awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# Median of the quotients of column $2 in files $1.weir and $1.tgtd, repetition by repetition.
median_ratio() {
    paste -d' ' "$1.weir" "$1.tgtd" |
        awk -v c="$2" '{ n = NF / 2; print ($(n + c) > 0) ? $c / $(n + c) : 0 }' >"$work/ratios"
    median "$work/ratios" 1
}

# Maximum minus minimum of column 1, in percent of the median.
spread() {
    awk -v m="$(median "$1" 1)" 'NR == 1 || $1 < low { low = $1 } NR == 1 || $1 > high { high = $1 }
        END { printf "%.0f%%", (m > 0) ? 100 * (high - low) / m : 0 }' "$1"
}

# Column $2 of file $1 as a list.
list() { awk -v c="$2" '{ printf "%s%s", (NR > 1) ? "," : "", $c }' "$1"; }

echo
printf '%-8s %-5s %5s %4s | %8s %6s %8s %6s %6s | %7s %7s %6s | %s\n' \
    io op depth sess weir/s spread tgtd/s spread ratio weir-us tgtd-us ratio target
judged=0 missed=0 results=''
for cell in "${cells[@]}"; do
    read -r mode op depth sessions <<<"$cell"
    name=$work/$mode.$op.$depth.$sessions
    iops=$(median_ratio "$name" 1)
    cpu=$(median_ratio "$name" 2)
    verdict='' holds=null
    if [ "$depth" -eq "$TARGET_DEPTH" ]; then
        judged=$((judged + 1))
        if awk -v i="$iops" -v c="$cpu" -v ti="$TARGET_IOPS" -v tc="$TARGET_CPU" \
            'BEGIN { exit !(i >= ti && c <= tc) }'; then
            verdict=holds holds=true
        else
            verdict=missed holds=false
            missed=$((missed + 1))
        fi
    fi
    printf '%-8s %-5s %5s %4s | %8.0f %6s %8.0f %6s %6.2f | %7.2f %7.2f %6.2f | %s\n' \
        "$mode" "$op" "$depth" "$sessions" \
        "$(median "$name.weir" 1)" "$(spread "$name.weir")" \
        "$(median "$name.tgtd" 1)" "$(spread "$name.tgtd")" "$iops" \
        "$(median "$name.weir" 2)" "$(median "$name.tgtd" 2)" "$cpu" "$verdict"
    servers=''
    for server in weir tgtd; do
        servers="$servers,\"$server\":{\"iops\":[$(list "$name.$server" 1)],\"cpu_us_per_io\":[$(list "$name.$server" 2)],\"p50_us\":[$(list "$name.$server" 3)],\"p99_us\":[$(list "$name.$server" 4)]}"
    done
    results="$results,{\"io\":\"$mode\",\"op\":\"$op\",\"depth\":$depth,\"sessions\":$sessions$servers,\"iops_ratio\":$iops,\"cpu_ratio\":$cpu,\"holds\":$holds}"
done
echo

all=false
if [ "$judged" -gt 0 ] && [ "$missed" -eq 0 ]; then all=true; fi
if [ -n "$json" ]; then
    printf '{"version":1,"block":4096,"size_mib":%s,"seconds":%s,"repetitions":%s,"targets":{"depth":%s,"iops_ratio_min":%s,"cpu_ratio_max":%s},"cells":[%s],"holds":%s}\n' \
        "$size" "$seconds" "$repetitions" "$TARGET_DEPTH" "$TARGET_IOPS" "$TARGET_CPU" \
        "${results#,}" "$all" >"$json"
fi
goal="at depth $TARGET_DEPTH, IOPS >= $TARGET_IOPS x tgtd and CPU per I/O <= 2/3 x tgtd"
if [ "$judged" -eq 0 ]; then
    echo "targets not checked: no cell has depth $TARGET_DEPTH"
elif [ "$all" = true ]; then
    echo "targets met: $goal, in all $judged cells"
else
    echo "targets NOT met: $goal, in $((judged - missed)) of $judged cells"
    exit 4
fi
