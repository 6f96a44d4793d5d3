#!/usr/bin/env bash
# Prints the miss ratios of traces for four cache sizes under each eviction policy. See docs/research/cache.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
target_dir=${CARGO_TARGET_DIR:-$root/target}

usage() {
    cat <<'TEXT'
usage: bench/misses.sh [options] TRACE...
  --weir PROGRAM    (built here)
  --line BYTES      (4KiB)
  --list FOLDER     instead: write what each trace asks for into FOLDER/NAME.csv, one line of the buffer in
                    each row, for another simulator (4 KiB lines; Weir's own format of traces only)
exit status: 0 printed, 2 usage, 1 anything else
TEXT
}

fail() {
    echo "misses.sh: $*" >&2
    exit 1
}

weir='' line=4KiB folder='' traces=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --weir | --line | --list)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            case $1 in
                --weir) weir=$2 ;;
                --line) line=$2 ;;
                --list) folder=$2 ;;
            esac
            shift 2
            ;;
        -*) usage >&2; exit 2 ;;
        *) traces+=("$1"); shift ;;
    esac
done
[ ${#traces[@]} -gt 0 ] || { usage >&2; exit 2; }

if [ -n "$folder" ]; then
    command -v zstd >/dev/null || fail "needs zstd"
    mkdir -p "$folder"
    for trace in "${traces[@]}"; do
        name=$(basename "$trace" .csv.zst)
        # A line of a device, as one number.
        zstd -dc -- "$trace" | awk -F, '
            BEGIN { print "time,line" }
            /^[0-9]/ {
                for (n = int($4 / 4096); n * 4096 < $4 + $5; n++)
                    printf "%d,%.0f\n", $1 / 1e9, ($3 + 1) * 2 ^ 44 + n
            }' >"$folder/$name.csv"
        echo "$folder/$name.csv: $(($(wc -l <"$folder/$name.csv") - 1)) accesses"
    done
    exit 0
fi

if [ -z "$weir" ]; then
    (cd "$root" && cargo build --quiet --release --locked -p weir) || fail "weir does not build"
    weir=$target_dir/release/weir
fi
for trace in "${traces[@]}"; do
    "$weir" trace misses "$trace" --line "$line"
    echo
done
