#!/usr/bin/env bash
# Measures the cost of the default control policy without contracts. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

# Maximum loss of `slack` compared with `open`, in percent.
readonly LOSS=1

usage() {
    cat <<'TEXT'
usage: bench/unlimited.sh [options]
  --seconds S       length of each measurement (2)
  --repetitions R   measurements of each policy (10)
  --size MIB        size of the file (64)
  --dir DIR         where the file goes ($TMPDIR or /tmp)
exit status: 0 `slack` loses less than 1 %, 4 it loses more, 2 usage, 1 other errors
TEXT
}

seconds=2 repetitions=10 size=64 dir=${TMPDIR:-/tmp}
options 'seconds repetitions size' dir '' "$@"
# shellcheck source=bench/instructions.sh
. "$here/instructions.sh"
(cd "$root" && cargo build --quiet --release --locked) ||
    fail "the programs do not build"
weir=$target_dir/release/weir

work=$(mktemp -d "$dir/weir-unlimited.XXXXXX")
declare -A pids urls counted
clean_up() {
    local pid
    for pid in "${pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Sets pids and urls of a gateway under a policy.
start() {
    local policy=$1 port=''
    head -c "${size}M" /dev/urandom >"$work/$policy.img"
    cat >"$work/$policy.toml" <<TEXT
[iscsi]
listen = ["127.0.0.1:0"]

[policy]
control = "$policy"

[[volume]]
name = "disk0"
file = "$work/$policy.img"

[[target]]
name = "iqn.2026-11.org.example:$policy"
luns = { 0 = "disk0" }
TEXT
    "$weir" serve "$work/$policy.toml" --json >"$work/$policy.out" 2>"$work/$policy.log" &
    pids[$policy]=$!
    await_weir "$work/$policy" "${pids[$policy]}"
    urls[$policy]=127.0.0.1:$port/iqn.2026-11.org.example:$policy/0
}

# The number of a key in a line of flat JSON.
field() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }

# measure POLICY SEED: appends "IOPS CPU" to the file of the policy.
measure() {
    local line
    line=$("$target_dir/release/iscsi-load" --url "${urls[$1]}" --depth 32 --sessions 4 --seconds "$seconds" \
        --seed "$2" --server-pid "${pids[$1]}") || fail "$1: the load failed: $line"
    echo "$(field "$line" iops) $(field "$line" server_cpu_us_per_io)" >>"$work/$1.figures"
}

# Median of the lines of a file.
median() {
    sort -g "$1" | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# Prints the medians of column $1, and the median difference of `slack` over pairs, in percent.
compare() {
    local policy
    for policy in open slack; do
        awk -v c="$1" '{ print $c }' "$work/$policy.figures" >"$work/$policy.column"
    done
    paste -d' ' "$work/open.column" "$work/slack.column" | awk '{ print 100 * ($2 / $1 - 1) }' >"$work/more"
    echo "$(median "$work/open.column") $(median "$work/slack.column") $(median "$work/more")"
}

echo "weir $("$weir" --version | awk '{ print $2 }'), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo
for policy in open slack; do
    counted[$policy]=$(instructions_each 100000 100000 "$target_dir/release/weir-measure" pipeline "$policy")
done
echo "pipeline, instructions per request: open ${counted[open]}, slack ${counted[slack]}," \
    "$((counted[slack] - counted[open])) more"

start open
start slack
for repetition in $(seq "$repetitions"); do
    # The first measurement affects the second, so the order alternates, too.
    order='open slack'
    [ $((repetition % 2)) -eq 1 ] || order='slack open'
    for policy in $order; do
        measure "$policy" "$repetition"
    done
done
read -r open slack more <<<"$(compare 2)"
printf 'gateway, CPU time per request:      open %.2f us, slack %.2f us, %+.1f %%\n' "$open" "$slack" "$more"
read -r open slack more <<<"$(compare 1)"
printf 'gateway, requests per second:       open %.0f, slack %.0f, %+.1f %%\n' "$open" "$slack" "$more"
echo
if awk -v more="$more" -v loss="$LOSS" 'BEGIN { exit !(more > -loss) }'; then
    echo "target met: without contracts \`slack\` loses less than $LOSS % of the throughput"
else
    echo "target NOT met: without contracts \`slack\` loses $LOSS % of the throughput or more"
    exit 4
fi
