# Counts instructions, for the scripts beside this one, which source it. They define `fail` and a folder `work`, and
# may define `limit`, the maximum seconds of a run.
# shellcheck shell=bash
# shellcheck disable=SC2154 # the sourcing script sets work

command -v valgrind >/dev/null || fail "not installed: valgrind; on Debian: apt-get install valgrind"
command -v awk >/dev/null || fail "not installed: awk; on Debian: apt-get install mawk"

# instructions PROGRAM ARGUMENT...: prints the instructions of a whole run; nothing if it takes too long.
instructions() {
    local log status=0
    log=$(mktemp "$work/run.XXXXXX")
    timeout "${limit:-0}" valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
        "$@" >"$log" 2>&1 || status=$?
    [ "$status" -ne 124 ] || return 0
    [ "$status" -eq 0 ] || fail "$*: $(tail -n 3 "$log")"
    sed -n 's/.*I *refs: *//p' "$log" | tr -d ,
}

# instructions_each WARM_UP COUNT PROGRAM ARGUMENT...: prints the instructions per event for COUNT events after the
# warm-up; the program takes the number of events as its last argument; `-` if it takes too long.
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
