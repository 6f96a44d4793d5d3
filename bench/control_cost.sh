#!/usr/bin/env bash
# Counts the instructions that control costs per request. See README.md beside this file.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
target_dir=${CARGO_TARGET_DIR:-$root/target}

# The cost for the last of TENANTS may be this many times that for the one before.
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

fail() {
    echo "control_cost.sh: $*" >&2
    exit 1
}

policies='ta1 ta2 ta3 edf facade sfq mclock slack' warm_up=150000 requests=100000 limit=30
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
    esac
    [ $# -ge 2 ] || { usage >&2; exit 2; }
    case $1 in
        --policies) policies=$2 ;;
        --warm-up) warm_up=$2 ;;
        --requests) requests=$2 ;;
        --limit) limit=$2 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift 2
done
for word in $warm_up $requests $limit; do
    case $word in
        '' | *[!0-9]* | 0*) echo "control_cost.sh: \`$word\` is not a whole number above 0" >&2; exit 2 ;;
    esac
done
# shellcheck source=bench/instructions.sh
. "$here/instructions.sh"
(cd "$root" && cargo build --quiet --release --locked -p weir-flow --example control_cost) ||
    fail "the driver does not build"
program=$target_dir/release/examples/control_cost

work=$(mktemp -d "${TMPDIR:-/tmp}/weir-control-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "$(valgrind --version), $(rustc --version), $(uname -m)"
echo "instructions per request, $requests requests after $warm_up; the first line is the driver's own"
echo
printf '%-8s' policy
for n in $TENANTS; do printf ' %9s' "$n"; done
printf '  %s\n' verdict
own='' grows=''
for policy in open $policies; do
    printf '%-8s' "$policy"
    costs=''
    for n in $TENANTS; do
        costs="$costs $(instructions_each "$warm_up" "$requests" "$program" "$policy" "$n")"
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
    echo "grows with the tenants, or takes more than $limit s to count:$grows"
    exit 4
fi
echo "flat or logarithmic: ${TENANTS##* } tenants cost less than $FACTOR times what $(cut -d' ' -f2 <<<"$TENANTS") do"
