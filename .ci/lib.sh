# Steps with durations, for .ci/run and .ci/nightly, which source this file.
# shellcheck shell=bash

durations=()
current=

# step NAME: ends the previous step and begins this one.
step() {
  end_step
  current=$*
  began=$SECONDS
  echo
  echo "=== $current ($(date +%H:%M:%S))"
}

end_step() {
  [ -z "$current" ] || durations+=("$((SECONDS - began)) $current")
  current=
}

# beside NAME COMMAND...: runs a command beside the steps that follow, until `join_beside` or the end of the script.
beside_pid=
beside() {
  local name=$1 began=$SECONDS
  shift
  echo
  echo "=== $name runs beside the next steps ($(date +%H:%M:%S))"
  beside_log=$(mktemp)
  (
    status=0
    "$@" || status=$?
    echo "$name took $((SECONDS - began)) s"
    exit $status
  ) >"$beside_log" 2>&1 &
  beside_pid=$!
}

# Waits for the command of `beside`, prints its output, and returns its exit status.
join_beside() {
  local status=0
  [ -n "$beside_pid" ] || return 0
  wait "$beside_pid" || status=$?
  beside_pid=
  cat "$beside_log"
  rm "$beside_log"
  return $status
}

# Prints the duration of each step in seconds, the longest first.
print_durations() {
  echo
  echo "=== durations in seconds, longest first"
  printf '%s\n' "${durations[@]}" | sort -rn
  echo "$SECONDS in all"
}

# Steps that did not run, and the reason. Printed at the end.
not_run=()
print_not_run() {
  local what
  for what in "${not_run[@]}"; do echo "!!! NOT RUN: $what"; done
}

# install PACKAGE...: installs missing Debian packages.
install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  $SUDO apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# tool NAME VERSION [FEATURE...]: a cargo subcommand or program from the registry, built without optimisation: it runs
# for seconds, and an optimised build takes minutes.
tool() {
  local program=${CARGO_HOME:-$HOME/.cargo}/bin/$1
  "$program" --version 2>/dev/null | grep -qF "$2" && return
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 \
    cargo install --locked --quiet "$1@$2" "${@:3}"
}

SUDO=
[ "$(id -u)" = 0 ] || SUDO=sudo
export PYTHONDONTWRITEBYTECODE=1
# A fresh clone is built once: what a second build would reuse is not written.
export CARGO_INCREMENTAL=0
packages=(gcc g++ libc6-dev python3 iproute2 openssl fio prometheus tgt istgt libiscsi-bin libnbd-bin open-isns-server open-isns-utils
  qemu-utils qemu-block-extra qemu-system-common xfsprogs valgrind)

# Digests of every plan, of a replayed trace and of crash enumeration, by one build of the program.
digests_of() {
  local weir=$1 plan
  for plan in plans/*.toml; do
    echo "$plan $("$weir" sim "$plan" --json | grep -o '"digest": *"[0-9a-f]*"')"
  done
  echo "replay $("$weir" replay plans/traces/linux-mysql.csv.zst --device array-m1 --json | grep -o '"digest": *"[0-9a-f]*"')"
}
