#!/usr/bin/env bash
# Fuzzes one target with libFuzzer; needs only a stable toolchain and a C++ compiler.
#
#   run.sh TARGET [SECONDS [SEED]]
#                             starts from corpus/TARGET, which it does not change: new inputs go to
#                             work/TARGET, a failing input to artifacts/TARGET. With a
#                             seed and an empty work/TARGET, two runs try the same inputs
#   run.sh TARGET minimise    replaces corpus/TARGET by the smallest set of inputs, from it and from
#                             work/TARGET, that reaches the same code
#
# The last line is the number of executions. `cargo +nightly fuzz run TARGET` works too and adds the
# address sanitizer.
set -euo pipefail
cd "$(dirname "$0")"
target=$1
what=${2:-60}
seed=${3:-0}
[ -f "fuzz_targets/$target.rs" ] || { echo "no target $target: see fuzz_targets/" >&2; exit 1; }

# Longest input, in bytes.
longest=1024
# The coverage instrumentation that libFuzzer reads. --target keeps it out of build scripts.
triple=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build --release --locked --quiet --target "$triple" --bin "$target"
program=${CARGO_TARGET_DIR:-target}/$triple/release/$target

mkdir -p "work/$target" "artifacts/$target" "corpus/$target"
# An input takes milliseconds; the limit is wall-clock seconds, long enough for a busy machine.
options=(-max_len=$longest "-artifact_prefix=artifacts/$target/" -timeout=300 -rss_limit_mb=1024)
if [ -f "$target.dict" ]; then options+=("-dict=$target.dict"); fi

if [ "$what" = minimise ]; then
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  "$program" "${options[@]}" -set_cover_merge=1 -use_counters=0 -use_cmp=0 "$fresh" "corpus/$target" "work/$target" 2>&1 |
    grep -E 'MERGE-OUTER|ERROR' | tail -3
  rm -f "corpus/$target"/*
  cp "$fresh"/* "corpus/$target/"
  echo "$(find "corpus/$target" -type f | wc -l) inputs, $(du -cb "corpus/$target"/* | tail -1 | cut -f1) bytes"
  exit
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$program" "${options[@]}" "-max_total_time=$what" "-seed=$seed" -print_final_stats=1 "work/$target" "corpus/$target" \
  >"$log" 2>&1 || {
  grep -A2 -E "panicked at|ERROR: libFuzzer|Test unit written" "$log" | head -20
  echo "$target: a property is broken, or a limit reached; the whole output:" >&2
  cat "$log" >&2
  exit 1
}
grep -E 'cov: ' "$log" | tail -1
echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions in $what s, none broke a property"
