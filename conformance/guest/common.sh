# Runs in the guest, before each part. The host sets HOST, PORT, PORT2, NVME, NVME2, FAR, FLASH, CONTROL and PREFIX.

# control COMMAND...: prints the answer of the host's controller
control() {
  local answer
  exec 9<>"/dev/tcp/$HOST/$CONTROL"
  echo "$*" >&9
  read -r answer <&9
  exec 9>&-
  case $answer in failed*) echo "control $*: $answer" >&2; return 1 ;; esac
  echo "$answer"
}

# node NAME [PORT [IFACE]]: creates the record of a target. Without the portal group tag the records of two interfaces
# would overwrite each other.
node() { iscsiadm -m node -T "$PREFIX.$1" -p "$HOST:${2:-$PORT},1" ${3:+-I "$3"} -o new >/dev/null; }
setting() { iscsiadm -m node -T "$PREFIX.$1" -p "$HOST:$PORT" -o update -n "$2" -v "$3"; }
# login NAME [PORT]: through that portal, by every record
login() { iscsiadm -m node -T "$PREFIX.$1" -p "$HOST:${2:-$PORT}" --login >/dev/null; }
# logout NAME [PORT]: when no process has the disk open
logout() { udevadm settle; iscsiadm -m node -T "$PREFIX.$1" ${2:+-p "$HOST:$2"} --logout >/dev/null; }

# device NAME [PORT [INITIATOR]]: the disk of that session
device() {
  local session number disk
  for _ in $(seq 50); do
    for session in /sys/class/iscsi_session/session*; do
      number=${session##*session}
      if [ "$(cat "$session/targetname")" = "$PREFIX.$1" ] &&
        [ "$(cat "/sys/class/iscsi_connection/connection$number:0/persistent_port")" = "${2:-$PORT}" ] &&
        { [ -z "${3:-}" ] || [ "$(cat "$session/initiatorname")" = "$3" ]; }; then
        for disk in "$session"/device/target*/*/block/*; do
          if [ -b "/dev/${disk##*/}" ]; then echo "/dev/${disk##*/}"; return; fi
        done
      fi
    done
    sleep 0.2
  done
  echo "no disk of $*; the sessions are:" >&2
  grep -H . /sys/class/iscsi_session/session*/{targetname,initiatorname,state} >&2 || true
  return 1
}

# until_works COMMAND...: tries for half a minute
until_works() {
  local i
  for i in $(seq 60); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  echo "never worked: $*" >&2
  "$@"
}

# must_fail PATTERN COMMAND...
must_fail() {
  local pattern=$1 out
  shift
  if out=$("$@" 2>&1); then
    echo "this must fail: $*: $out" >&2
    return 1
  fi
  grep -qiE -- "$pattern" <<<"$out" || { echo "failed without \"$pattern\": $*: $out" >&2; return 1; }
  echo "ok   refused: ${*:1:4}"
}

# says PATTERN COMMAND...
says() {
  local pattern=$1 out
  shift
  out=$("$@" 2>&1) || { echo "failed: $*: $out" >&2; return 1; }
  grep -qE -- "$pattern" <<<"$out" || { echo "no \"$pattern\" from $*: $out" >&2; return 1; }
  echo "ok   ${*:1:4}: $pattern"
}

verified() { # verified FOLDER MIB: random writes at depth 16, read back
  fio --name=v "--directory=$1" "--size=${2}m" --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 \
    --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 --end_fsync=1 | grep -E 'IOPS|err='
}
