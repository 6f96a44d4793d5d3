#!/usr/bin/env bash
# Weir as the initiator of other people's targets, and of targets that break the protocol.
#
#     upstream.sh [peers|hostile]     both without an argument
#
# peers:   tgtd, istgt and Weir itself, with digests and CHAP both ways; a wrong secret is refused.
# hostile: see path/hostile.py; and a gateway that does not start because its only portal is hostile.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
. "$(dirname "$0")/path/tgtd.sh"
. "$(dirname "$0")/path/istgt.sh"
need tgtd tgtadm istgt fio qemu-io qemu-img python3
SECRET=secretsecret12
MUTUAL=mutualmutual12
PROCESSES=()
export PYTHONDONTWRITEBYTECODE=1
end_all() {
  tgtd_stop
  local one
  for one in "${PROCESSES[@]}"; do
    kill -9 "$one" 2>/dev/null || true
    wait "$one" 2>/dev/null || true
  done
  PROCESSES=()
}
trap 'end_all; cleanup' EXIT

# configure TARGET LUN PORTAL LINES: an upstream volume `disk`; LINES are the upstream's
configure() {
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk" }
[[account]]
name = "alice"
secret = "${ALICE:-$SECRET}"
[[account]]
name = "tgtside"
secret = "${TGTSIDE:-$MUTUAL}"
[[upstream]]
name = "peer"
target = "$1"
lun = $2
portals = ["$3"]
connect_within = "3s"
$4
[[volume]]
name = "disk"
upstream = "peer"
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
}

# verified WHAT FILE: what NBD and iSCSI clients write is read back, and is in the target's own file
verified() {
  local what=$1 file=$2 out
  serve
  URI=${NBD[0]%/}/disk
  out=$(cd "$WORK" && timeout 120 fio --name=v --ioengine=nbd "--uri=$URI" --rw=randwrite --bsrange=4k-256k --blockalign=4k \
    --size=32m --iodepth=32 --verify=crc32c --verify_fatal=1 --do_verify=1 2>&1) || fail "fio over $what: $out"
  grep -q 'err= 0' <<<"$out" || fail "fio over $what: $out"
  expect 'read 4194304/4194304' qemu-io -f raw -t none -c 'write -P 7 32M 4M' -c 'write -f -P 8 33M 64k' -c 'write -z 34M 64k' \
    -c 'discard 35M 64k' -c flush -c 'read -P 8 33M 64k' -c 'read -P 0 34M 64k' -c 'read -P 7 32M 512k' -c 'read 32M 4M' \
    "iscsi://$PORTAL/$TARGET/0"
  timeout 60 qemu-img convert -f raw -O raw "$URI" "$WORK/copy.img"
  cmp "$WORK/copy.img" "$file" || fail "$what: the target's file differs from what the gateway reads"
  stop
  echo "ok   $what"
}

# refused PATTERN: the gateway must not start, and must say why
refused() {
  chmod go= "$WORK/weir.toml"
  refuse "$1" timeout 20 "$WEIR" serve "$WORK/weir.toml"
}

peers() {
  echo '--- tgtd'
  truncate -s 64M "$WORK/disk.img"
  tgtd_start "$WORK/disk.img"
  configure "$TGT_NAME" 1 "${TGT_PORTALS[0]}" ''
  verified 'tgtd, as it is' "$WORK/disk.img"
  tgt --mode account --op new --user alice --password "$SECRET"
  tgt --mode account --op bind --tid 1 --user alice
  tgt --mode account --op new --user tgtside --password "$MUTUAL"
  tgt --mode account --op bind --tid 1 --user tgtside --outgoing
  tgt --mode target --op update --tid 1 --name HeaderDigest --value CRC32C
  tgt --mode target --op update --tid 1 --name DataDigest --value CRC32C
  configure "$TGT_NAME" 1 "${TGT_PORTALS[0]}" "$both"
  verified 'tgtd, CHAP both ways, CRC32C over headers and data' "$WORK/disk.img"
  wrong_secrets "$TGT_NAME" 1 "${TGT_PORTALS[0]}"
  end_all

  echo '--- istgt'
  istgt_start
  configure "$ISTGT_NAME:disk1" 0 "$ISTGT_PORTAL" "$both"
  verified 'istgt, CHAP both ways, CRC32C over headers and data' "$WORK/istgt/disk.img"
  wrong_secrets "$ISTGT_NAME:disk1" 0 "$ISTGT_PORTAL"
  end_all

  echo '--- Weir'
  cat >"$WORK/behind.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
header_digest = "required"
data_digest = "required"
[[account]]
name = "alice"
secret = "$SECRET"
[[account]]
name = "tgtside"
secret = "$MUTUAL"
[[volume]]
name = "disk"
file = "$WORK/behind.img"
size = "64MiB"
[[target]]
name = "$TARGET.behind"
luns = { 0 = "disk" }
accounts = ["alice"]
mutual = "tgtside"
TOML
  chmod go= "$WORK/behind.toml"
  : >"$WORK/behind"
  "$WEIR" serve "$WORK/behind.toml" --json >"$WORK/behind" 2>"$WORK/behind.log" &
  PROCESSES+=($!)
  for _ in $(seq 200); do if [ -s "$WORK/behind" ]; then break; fi; sleep 0.05; done
  local portal
  portal=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["portals"][0])' "$WORK/behind")
  configure "$TARGET.behind" 0 "$portal" "$both"
  verified 'Weir, CHAP both ways, CRC32C over headers and data' "$WORK/behind.img"
  wrong_secrets "$TARGET.behind" 0 "$portal"
  end_all
}
both='account = "alice"
mutual = "tgtside"
header_digest = "required"
data_digest = "required"'

# A target may turn away who has guessed too often: the wrong secret of the gateway comes last.
wrong_secrets() { # wrong_secrets TARGET LUN PORTAL
  TGTSIDE=wrongwrongwrong configure "$1" "$2" "$3" "$both"
  refused 'peer.*([Aa]uthentication|prove|CHAP)'
  ALICE=wrongwrongwrong configure "$1" "$2" "$3" "$both"
  refused 'peer.*([Aa]uthentication|0201|refused)'
}

hostile() {
  echo '--- hostile portals'
  python3 "$ROOT/conformance/path/hostile_target.py" "$WORK/hostile.socket" >"$WORK/ports" &
  PROCESSES+=($!)
  local ports port fault
  for _ in $(seq 100); do if [ -s "$WORK/ports" ]; then break; fi; sleep 0.05; done
  ports=$(cat "$WORK/ports")
  {
    printf '[iscsi]\nlisten = ["127.0.0.1:0"]\n'
    python3 "$ROOT/conformance/path/hostile.py" config "$ports" "$WORK/local.img"
    printf '[[target]]\nname = "%s"\nluns = { 0 = "local" }\n' "$TARGET"
  } >"$WORK/weir.toml"
  : >"$WORK/log"
  serve
  local address=${NBD[0]#*://}
  timeout 120 python3 "$ROOT/conformance/path/hostile.py" run --nbd "${address%%/*}" --pid "$PID" --log "$WORK/log" --control "$WORK/hostile.socket" ||
    fail 'hostile portals'
  stop
  for fault in close:0 close:2 mute:1 L:denied L:never L:moved-here C:data-more C:capacity-huge C:block-3; do
    port=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]][1])' "$ports" "$fault")
    configure iqn.2026-11.org.example:hostile 1 "127.0.0.1:$port" ''
    refused "peer.* works within" >/dev/null
    echo "ok   no gateway without another portal than $fault"
  done
  end_all
}

case ${1:-both} in
  peers | hostile) "$1" ;;
  both)
    peers
    hostile
    ;;
  *) fail "peers or hostile, not $1" ;;
esac
