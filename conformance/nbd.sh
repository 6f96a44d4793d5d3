#!/usr/bin/env bash
# Other people's NBD clients against the gateway: libnbd's tools, QEMU, fio with many requests in
# flight on several connections, TLS, the Unix socket; and clients that break the protocol.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need nbdinfo nbdcopy qemu-io qemu-img fio openssl python3
MIB=256

configure() { # configure LINES-OF-[nbd]
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
unix = "$WORK/nbd.socket"
exports = { disk = "disk", constant = "constant" }
$1
[[volume]]
name = "disk"
file = "$WORK/disk.img"
size = "${MIB}MiB"
[[volume]]
name = "constant"
file = "$WORK/constant.img"
size = "16MiB"
read_only = true
[[target]]
name = "$TARGET"
luns = { 0 = "disk" }
TOML
}

# Sets ADDRESS (host:port), URI and LOCAL (the same over the Unix socket) of the export `disk`.
serve_nbd() {
  truncate -s 16M "$WORK/constant.img"
  serve
  local uri
  ADDRESS=
  for uri in "${NBD[@]}"; do
    case $uri in *+unix:*) ;; *) ADDRESS=${uri#*://} ADDRESS=${ADDRESS%%/*} ;; esac
  done
  [ -n "$ADDRESS" ] || fail "no TCP address among: ${NBD[*]}"
  URI=nbd://$ADDRESS/disk
  LOCAL="nbd+unix:///disk?socket=$WORK/nbd.socket"
  URL=iscsi://$PORTAL/$TARGET/0
}

configure ''
serve_nbd
echo '--- what it offers'
info=$(timeout 20 nbdinfo "$URI")
for line in 'newstyle-fixed without TLS, using structured packets' "export-size: $((MIB << 20))" 'base:allocation' \
  'can_flush: true' 'can_fua: true' 'can_trim: true' 'can_zero: true' 'can_multi_conn: true' 'is_read_only: false'; do
  grep -qF "$line" <<<"$info" || fail "nbdinfo does not say \"$line\": $info"
  echo "ok   nbdinfo: $line"
done
expect 'export="constant"' nbdinfo --list "nbd://$ADDRESS"
expect 'export="disk"' nbdinfo --list "nbd://$ADDRESS"
expect 'is_read_only: true' nbdinfo "nbd://$ADDRESS/constant"
refuse 'nobody|requested export|No such' nbdinfo "nbd://$ADDRESS/nobody"
refuse '.' qemu-io -f raw -c 'write 0 4k' "nbd://$ADDRESS/constant"

echo '--- copies, both ways, over both sockets'
head -c $((MIB << 20)) /dev/urandom >"$WORK/source.img"
timeout 120 nbdcopy --connections=4 --requests=64 "$WORK/source.img" "$URI"
timeout 120 nbdcopy --connections=4 --requests=64 "$URI" "$WORK/back.img"
cmp "$WORK/source.img" "$WORK/back.img" && echo "ok   nbdcopy over TCP, there and back"
timeout 120 nbdcopy "$LOCAL" "$WORK/local.img"
cmp "$WORK/source.img" "$WORK/local.img" && echo "ok   nbdcopy over the Unix socket"
rm "$WORK/back.img" "$WORK/local.img"
# iSCSI and NBD show the same volume.
expect 'Images are identical' qemu-img compare -f raw -F raw "$WORK/source.img" "$URI"
expect 'Images are identical' qemu-img compare -f raw -F raw "$URL" "$LOCAL"

echo '--- QEMU'
expect 'read 4194304/4194304' qemu-io -f raw -t none \
  -c 'write -P 0x5a 0 64k' -c 'read -P 0x5a 0 64k' -c flush \
  -c 'write -f -P 0xa5 128k 4k' -c 'read -P 0xa5 128k 4k' \
  -c 'write -P 1 192k 128k' -c 'write -z 192k 64k' -c 'discard 256k 64k' -c 'read -P 0 192k 128k' \
  -c 'aio_write -P 1 1M 1M' -c 'aio_write -P 2 2M 1M' -c aio_flush \
  -c 'read -P 1 1M 1M' -c 'read -P 2 2M 1M' \
  -c 'write -P 7 8M 4M' -c 'read -P 7 8M 4M' "$URI"
refuse 'verification failed' qemu-io -f raw -c 'read -P 9 8M 64k' "$URI"
timeout 120 qemu-img convert -n -f raw -O raw -t none "$WORK/source.img" "$URI"
expect 'Images are identical' qemu-img compare -f raw -F raw "$WORK/source.img" "$URI"

echo '--- block status'
qemu-io -f raw -c "discard 0 ${MIB}M" -c 'write -P 3 16M 1M' "$URI" >/dev/null
expect ' 0 +16777216 +3 +hole,zero' nbdinfo --map "$URI"
expect ' 16777216 +1048576 +0 +(data|allocated)' nbdinfo --map "$URI"
expect " 17825792 +$(((MIB - 17) << 20)) +3 +hole,zero" nbdinfo --map "$LOCAL"

# verified URI: 64 requests in flight on each of 4 connections, and what was written is read back
verified() {
  local out
  out=$(cd "$WORK" && timeout 120 fio --name=v --ioengine=nbd "--uri=$1" --rw=randwrite --bsrange=4k-64k --blockalign=4k \
    --size=32m --offset_increment=32m --numjobs=4 --iodepth=64 --verify=crc32c --verify_fatal=1 --do_verify=1 \
    --group_reporting 2>&1) || fail "fio: $out"
  grep -q 'err= 0' <<<"$out" || fail "fio: $out"
  echo "ok   fio over ${1%%:*}: $(grep -oE 'IOPS=[^ ,]+' <<<"$out" | tr '\n' ' ')"
}
echo '--- fio, verified'
verified "$URI"
verified "$LOCAL"

echo '--- clients that break the protocol'
timeout 120 python3 "$ROOT/conformance/nbd_malformed.py" "${ADDRESS%:*}" "${ADDRESS##*:}" disk || fail "malformed requests"
timeout 120 python3 "$ROOT/conformance/nbd_malformed.py" "${ADDRESS%:*}" "${ADDRESS##*:}" constant read-only ||
  fail "malformed requests to a read-only export"
stop

echo '--- a crash loses nothing that was flushed'
serve_nbd
expect 'wrote' qemu-io -f raw -t none -c 'write -P 0x77 32M 4M' -c flush "$URI"
crash
serve_nbd
expect 'read 4194304' qemu-io -f raw -c 'read -P 0x77 32M 4M' "$LOCAL"
stop

echo '--- TLS'
# One authority for server and clients, and another that nobody trusts.
certificate() { # certificate FOLDER NAME AUTHORITY-FOLDER EXTENSION
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
    -keyout "$1/$2-key.pem" -out "$1/$2.csr" 2>/dev/null
  openssl x509 -req -in "$1/$2.csr" -CA "$3/ca-cert.pem" -CAkey "$3/ca-key.pem" -CAcreateserial -days 2 \
    -extfile <(printf 'basicConstraints=CA:FALSE\n%s\n' "$4") -out "$1/$2-cert.pem" 2>/dev/null
}
for folder in tls other; do
  mkdir "$WORK/$folder"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$folder" \
    -addext basicConstraints=critical,CA:TRUE -keyout "$WORK/$folder/ca-key.pem" -out "$WORK/$folder/ca-cert.pem" 2>/dev/null
done
certificate "$WORK/tls" server "$WORK/tls" 'subjectAltName=DNS:localhost,IP:127.0.0.1'
certificate "$WORK/other" client "$WORK/other" 'extendedKeyUsage=clientAuth'
mkdir "$WORK/anonymous" "$WORK/known"
cp "$WORK/tls/ca-cert.pem" "$WORK/anonymous/"
cp "$WORK/tls/ca-cert.pem" "$WORK/known/"
certificate "$WORK/known" client "$WORK/tls" 'extendedKeyUsage=clientAuth'
mkdir "$WORK/untrusting" "$WORK/stranger"
cp "$WORK/other/ca-cert.pem" "$WORK/untrusting/"
cp "$WORK/tls/ca-cert.pem" "$WORK/stranger/"
cp "$WORK/other/client-cert.pem" "$WORK/other/client-key.pem" "$WORK/stranger/"

tls() { echo "nbds://$ADDRESS/disk?tls-certificates=$WORK/$1"; }
keys="certificate = \"$WORK/tls/server-cert.pem\""$'\n'"key = \"$WORK/tls/server-key.pem\""

configure 'tls = "allowed"'$'\n'"$keys"
serve_nbd
expect 'newstyle-fixed with TLS' nbdinfo "$(tls anonymous)"
expect 'newstyle-fixed without TLS' nbdinfo "$URI"
refuse 'certificate|verif|TLS|handshake' nbdinfo "$(tls untrusting)"
timeout 120 nbdcopy --connections=4 --requests=64 "$WORK/source.img" "$(tls anonymous)"
timeout 120 nbdcopy --connections=4 --requests=64 "$(tls anonymous)" "$WORK/back.img"
cmp "$WORK/source.img" "$WORK/back.img" && echo "ok   nbdcopy over TLS, there and back"
# fio has no way to name the certificates, so QEMU it is. It looks at the server's name, too.
secured=(--object "tls-creds-x509,id=tls,endpoint=client,dir=$WORK/anonymous" --image-opts
  "driver=nbd,host=${ADDRESS%:*},port=${ADDRESS##*:},export=disk,tls-creds=tls,tls-hostname=localhost")
expect 'read 4194304/4194304' qemu-io -t none -c 'write -P 5 8M 4M' -c 'aio_write -P 6 2M 1M' -c 'aio_write -P 7 3M 1M' \
  -c aio_flush -c 'read -P 6 2M 1M' -c 'read -P 7 3M 1M' -c 'read -P 5 8M 4M' "${secured[@]}"
refuse '[Cc]ertificate does not match' qemu-io -c 'read 0 4k' "${secured[@]/localhost/elsewhere}"
stop

configure 'tls = "required"'$'\n'"$keys"
serve_nbd
expect 'newstyle-fixed with TLS' nbdinfo "$(tls anonymous)"
refuse 'TLS|encrypt|required|denied|disconnect' nbdinfo "$URI"
timeout 60 python3 "$ROOT/conformance/nbd_malformed.py" "${ADDRESS%:*}" "${ADDRESS##*:}" disk tls-required ||
  fail "malformed requests before TLS"
stop

configure 'tls = "required"'$'\n'"$keys"$'\n'"client_ca = \"$WORK/tls/ca-cert.pem\""
serve_nbd
expect 'newstyle-fixed with TLS' nbdinfo "$(tls known)"
refuse '.' nbdinfo "$(tls anonymous)"
refuse '.' nbdinfo "$(tls stranger)"
stop

echo '--- a larger volume without a restart'
configure ''
serve_nbd
sed -i "s/^size = \"${MIB}MiB\"/size = \"$((MIB + 64))MiB\"/" "$WORK/weir.toml"
kill -HUP "$PID"
for _ in $(seq 50); do
  if [ "$(timeout 10 nbdinfo --size "$URI")" = $(((MIB + 64) << 20)) ]; then break; fi
  sleep 0.1
done
expect "^$(((MIB + 64) << 20))\$" nbdinfo --size "$URI"
at=$(((MIB + 63) << 20))
expect 'read 65536/65536' qemu-io -f raw -t none -c "write -P 9 $at 64k" -c "read -P 9 $at 64k" "$URI"
stop
