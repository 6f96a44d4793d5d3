#!/usr/bin/env bash
# Counts the instructions of each control policy per request. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

# The maximum ratio of the cost with the last number of TENANTS to the cost with the previous one.
readonly TENANTS='1 1000 100000' FACTOR=2

usage() {
    cat <<'TEXT'
usage: bench/control_cost.sh [options]
  --policies LIST   ("ta1 ta2 ta3 edf facade sfq mclock slack"); `open` is always there
  --warm-up N       requests that are not counted (150000)
  --requests N      requests that are (100000)
  --limit S         a run that takes longer is given up (30)
exit status: 0 no policy grows with the tenants, 4 one does, 2 usage, 1 anything else
TEXT
}

policies='ta1 ta2 ta3 edf facade sfq mclock slack' warm_up=150000 requests=100000 limit=30
options 'warm_up requests limit' policies '' "$@"
# shellcheck source=bench/instructions.sh
. "$here/instructions.sh"
(cd "$root" && cargo build --quiet --release --locked) ||
    fail "the driver does not build"
program=$target_dir/release/weir-measure

work=$(mktemp -d "${TMPDIR:-/tmp}/weir-control-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "$(valgrind --version), $(rustc --version), $(uname -m)"
echo "instructions per request, $requests requests after $warm_up; the first line is the driver"
echo
printf '%-8s' policy
for n in $TENANTS; do printf ' %9s' "$n"; done
printf '  %s\n' verdict
own='' grows=''
for policy in open $policies; do
    printf '%-8s' "$policy"
    costs=''
    for n in $TENANTS; do
        costs="$costs $(instructions_each "$warm_up" "$requests" "$program" control "$policy" "$n")"
    done
    [ "$policy" != open ] || own=$costs
    verdict=$(awk -v costs="$costs" -v own="$own" -v policy="$policy" -v factor="$FACTOR" 'BEGIN {
        n = split(costs, cost); split(own, less)
        for (i = 1; i <= n; i++) {
            if (cost[i] != "-" && policy != "open") cost[i] -= less[i]
            printf " %9s", cost[i]
        }
        grows = cost[n] == "-" || cost[n - 1] == "-" || cost[n] >= factor * cost[n - 1]
        print (grows) ? "  grows" : "  flat or logarithmic"
    }')
    echo "$verdict"
    case $verdict in *grows) grows="$grows $policy" ;; esac
done
echo
if [ -n "$grows" ]; then
    echo "cost grows with the number of tenants, or counting takes more than $limit s:$grows"
    exit 4
fi
echo "flat or logarithmic: ${TENANTS##* } tenants cost less than $FACTOR times what $(cut -d' ' -f2 <<<"$TENANTS") do"
