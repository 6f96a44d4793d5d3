#!/usr/bin/env bash
# Counts the instructions of each path policy per I/O. See README.md beside this file.
set -euo pipefail

# shellcheck source=bench/options.sh
. "$(dirname "${BASH_SOURCE[0]}")/options.sh"

readonly PATHS='2 8 64'

usage() {
    cat <<'TEXT'
usage: bench/path_cost.sh [options]
  --policies LIST   (all of them)
  --warm-up N       I/Os that are not counted (20000)
  --ios N           I/Os that are (20000)
exit status: 0 counted, 2 usage, 1 anything else
TEXT
}

policies='jsw round-robin roung roung-job queue-length service-time historical-service-time ewma two-choices'
warm_up=20000 ios=20000
options 'warm_up ios' policies '' "$@"
# shellcheck source=bench/instructions.sh
. "$here/instructions.sh"
(cd "$root" && cargo build --quiet --release --locked) ||
    fail "the driver does not build"
program=$target_dir/release/weir-measure

work=$(mktemp -d "${TMPDIR:-/tmp}/weir-path-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "$(valgrind --version), $(rustc --version), $(uname -m)"
echo "instructions per I/O, $ios I/Os after $warm_up; the first line is the driver"
echo
printf '%-24s' policy
for n in $PATHS; do printf ' %6s' "$n"; done
echo
declare -A own
for policy in driver $policies; do
    printf '%-24s' "$policy"
    for n in $PATHS; do
        cost=$(instructions_each "$warm_up" "$ios" "$program" path "$policy" "$n")
        printf ' %6s' $((cost - ${own[$n]:-0}))
        [ "$policy" != driver ] || own[$n]=$cost
    done
    echo
done
