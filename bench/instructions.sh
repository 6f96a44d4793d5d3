# Counting instructions, for the scripts beside this one, which source it. They have `fail`, a folder
# `work` of their own, and may have `limit`, the seconds after which a run is given up.
# shellcheck shell=bash
# shellcheck disable=SC2154 # work is theirs

command -v valgrind >/dev/null || fail "not installed: valgrind; on Debian: apt-get install valgrind"
command -v awk >/dev/null || fail "not installed: awk; on Debian: apt-get install mawk"

# instructions PROGRAM ARGUMENT...: those of a whole run; nothing if it takes too long.
instructions() {
    local log status=0
    log=$(mktemp "$work/run.XXXXXX")
    timeout "${limit:-0}" valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
        "$@" >"$log" 2>&1 || status=$?
    [ "$status" -ne 124 ] || return 0
    [ "$status" -eq 0 ] || fail "$*: $(tail -n 3 "$log")"
    sed -n 's/.*I *refs: *//p' "$log" | tr -d ,
}

# instructions_each WARM_UP COUNT PROGRAM ARGUMENT...: what each of COUNT events after the warm-up costs, where
# the program takes their number as its last argument; `-` if that takes too long.
instructions_each() {
    local warm_up=$1 count=$2 short long
    shift 2
    instructions "$@" "$warm_up" >"$work/short" &
    instructions "$@" $((warm_up + count)) >"$work/long" || exit 1
    wait $! || exit 1
    short=$(cat "$work/short") long=$(cat "$work/long")
    if [ -n "$long" ] && [ -n "$short" ]; then
        echo $(((long - short) / count))
    else
        echo -
    fi
}
