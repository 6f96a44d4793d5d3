# Parses options for the scripts beside this one, which source it. They define `usage`, and for each option a variable
# of the same name with its default, with `_` for `-`. Also waits for a gateway to be ready.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the sourcing scripts use these variables

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
target_dir=${CARGO_TARGET_DIR:-$root/target}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

misused() {
    echo "${0##*/}: $*" >&2
    exit 2
}

# options NUMBERS TEXTS FLAGS ARGUMENT...: sets the variables by the arguments. NUMBERS are the names of options with
# lists of positive integers, TEXTS of options with one word or more, FLAGS of options without a value, set to `yes`.
options() {
    local numbers=$1 texts=$2 flags=$3 name word
    shift 3
    while [ $# -gt 0 ]; do
        case $1 in --help | -h) usage; exit 0 ;; esac
        name=${1#--}
        name=${name//-/_}
        if [[ $1 == --* && " $flags " == *" $name "* ]]; then
            printf -v "$name" yes
            shift
        elif [[ $1 == --* && " $numbers $texts " == *" $name "* && -n ${2:-} ]]; then
            printf -v "$name" %s "$2"
            shift 2
        else
            usage >&2
            exit 2
        fi
    done
    for name in $numbers; do
        for word in ${!name}; do
            case $word in *[!0-9]* | 0*) misused "\`$word\` is not a whole number above 0" ;; esac
        done
    done
}

# only LIST WHAT WORD...: fails unless the words of LIST are among these
only() {
    local list=$1 what=$2 word
    shift 2
    for word in $list; do
        [[ " $* " == *" $word "* ]] || misused "\`$word\` is not $what"
    done
}

# await_weir STEM PID: waits until the weir that serves STEM.toml, writes STEM.out and logs to STEM.log is ready; sets
# `port`
await_weir() {
    port=
    for _ in $(seq 300); do
        port=$(sed -n '/"event":"ready"/s/.*"portals":\["127\.0\.0\.1:\([0-9]*\)".*/\1/p' "$1.out")
        [ -z "$port" ] || return 0
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    fail "weir does not start: $(tail -n 5 "$1.log")"
}
