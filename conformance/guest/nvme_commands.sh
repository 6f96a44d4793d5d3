# Sixty commands, beside the kernel's own target: status, values and data are compared. A command whose answers may
# differ has the reason beside it; all others must be the same.
name=nqn.2026-11.org.example:nvme
ours=(-t tcp -a "$HOST" -s "$NVME" -n "$name")
modprobe nvme_tcp
modprobe nvmet
modprobe nvmet_tcp
modprobe loop
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
root=/sys/kernel/config/nvmet theirs=nqn.2026-11.org.example:kernel
truncate -s 128M /tmp/kernel.img
mkdir "$root/subsystems/$theirs" "$root/subsystems/$theirs/namespaces/1" "$root/ports/1"
echo 1 >"$root/subsystems/$theirs/attr_allow_any_host"
loop=$(losetup --find --show /tmp/kernel.img)
echo -n "$loop" >"$root/subsystems/$theirs/namespaces/1/device_path"
echo 1 >"$root/subsystems/$theirs/namespaces/1/enable"
echo tcp >"$root/ports/1/addr_trtype"
echo ipv4 >"$root/ports/1/addr_adrfam"
echo 127.0.0.1 >"$root/ports/1/addr_traddr"
echo 4421 >"$root/ports/1/addr_trsvcid"
ln -s "$root/subsystems/$theirs" "$root/ports/1/subsystems/$theirs"
nvme connect "${ours[@]}" -k 15 -i 1
until_works test -b /dev/nvme0n1
nvme connect -t tcp -a 127.0.0.1 -s 4421 -n "$theirs" -k 15 -i 1
until_works test -b /dev/nvme1n1
udevadm settle
# Ranges of Dataset Management: eight blocks at the beginning, and one behind the end.
printf '\0\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0' >/tmp/within
printf '\0\0\0\0\1\0\0\0\0\0\0\0\0\1\0\0' >/tmp/beyond
wrong=0 number=0
# outcome WHO KIND ARGUMENT...: status, value and a digest of the data of a command of one of the targets (0, 1)
outcome() {
  local who=$1 kind=$2 status=0 data=/tmp/data.$1 said=/tmp/said.$1
  shift 2
  local blocks
  blocks=$(cat "/sys/block/nvme${who}n1/size")
  set -- "${@//BLOCKS/$blocks}"
  case $kind in
  admin) nvme admin-passthru "/dev/nvme$who" -b "$@" >"$data" 2>"$said" || status=$? ;;
  io) nvme io-passthru "/dev/nvme${who}n1" -n 1 -b "$@" >"$data" 2>"$said" || status=$? ;;
  property) nvme get-property "/dev/nvme$who" "$@" >"$data" 2>"$said" || status=$? ;;
  esac
  if [ "$status" = 0 ]; then
    echo "$(grep -oE 'result: *0x[0-9a-f]+' "$said" || true) $(sha256sum <"$data" | cut -c1-12)"
  else
    # Without the bit "more": the kernel's keeps a log of errors.
    printf '%#x\n' $(($(grep -oE '0x[0-9a-fA-F]+' "$said" | tail -1) & ~0x2000))
  fi
}
# same KIND ARGUMENT...: both answer alike
same() {
  local ours theirs
  number=$((number + 1))
  ours=$(outcome 0 "$@") theirs=$(outcome 1 "$@")
  if [ "$ours" = "$theirs" ]; then echo "ok   $number: $*: $ours"; else
    echo "command $number ($*) differs: here $ours, there $theirs: $(cat /tmp/said.0 /tmp/said.1)"
    wrong=$((wrong + 1))
  fi
}
# may_differ REASON KIND ARGUMENT...: they need not, and both answer
may_differ() {
  local reason=$1 ours theirs
  shift
  number=$((number + 1))
  ours=$(outcome 0 "$@") || ours=
  theirs=$(outcome 1 "$@") || theirs=
  if [ -n "$ours" ] && [ -n "$theirs" ]; then echo "ok   $number: $*: here $ours, there $theirs: $reason"; else
    echo "command $number ($*) has no answer: here '$ours', there '$theirs': $(cat /tmp/said.0 /tmp/said.1)"
    wrong=$((wrong + 1))
  fi
}
identify() { echo admin -o 6 -r -l 4096 "--cdw10=$1" "--namespace-id=${2:-0}" "${@:3}"; }
log() { echo admin -o 2 -r -l "$2" "--cdw10=$(($1 | ($2 / 4 - 1) << 16))" "--namespace-id=${3:-0xffffffff}"; }
feature() { echo admin -o 0x0a "--cdw10=$1" "--namespace-id=${2:-0}"; }
set_feature() { echo admin -o 9 "--cdw10=$1" "--cdw11=$2" "--namespace-id=${3:-0}"; }
# shellcheck disable=SC2046 # words
{
  may_differ "names, limits" $(identify 1)
  may_differ "identifiers, physical blocks" $(identify 0 1)
  same $(identify 0 9)
  same $(identify 0 0xffffffff)
  same $(identify 2)
  same $(identify 2 1)
  may_differ "the standard has it refused" $(identify 2 0xfffffffe)
  may_differ "identifiers" $(identify 3 1)
  same $(identify 3 9)
  may_differ "limits of Verify and Write Zeroes" $(identify 6)
  may_differ "not in the kernel's" $(identify 8 1)
  may_differ "not in the kernel's" $(identify 0x13)
  same $(identify 0x7f)
  same admin -o 6 -r -l 512 --cdw10=1
  may_differ "not in the kernel's" $(log 0 1024)
  may_differ "the kernel's keeps errors" $(log 1 64)
  may_differ "the kernel's counts" $(log 2 512)
  may_differ "the kernel's counts" $(log 2 512 1)
  may_differ "the revision" $(log 3 512)
  same $(log 4 4096)
  may_differ "commands and features that only one has" $(log 5 4096)
  same $(log 0xc 52)
  may_differ "none of discovery here" $(log 0x70 1024)
  may_differ "its own status here" $(log 0x55 512)
  may_differ "zeroes behind the end here" $(log 2 516)
  same $(log $((0xc | 1 << 15)) 52)
  may_differ "limits" $(feature 7)
  may_differ "limits" $(set_feature 7 0x10001)
  same $(set_feature 7 0xffff)
  same $(feature 0xb)
  may_differ "an event that is not offered is refused here" $(set_feature 0xb 0x80000000)
  same $(feature 0xf)
  may_differ "rounding" $(set_feature 0xf 15000)
  same admin -o 0x0a --cdw10=0x81 --cdw11=1 -r -l 16
  may_differ "a cache is not switched" $(feature 6)
  may_differ "a cache is not switched" $(set_feature 6 0)
  same $(feature 0x55)
  may_differ "the constant features have values here" $(feature 2)
  may_differ "limits" property -o 0
  may_differ "the version" property -o 8
  may_differ "hosts select a command set of the kernel's" property -o 0x14
  same property -o 0x1c
  same property -o 0x20
  same admin -o 8 --cdw10=0xffff0001
  same admin -o 0
  same admin -o 0x18
  same admin -o 0x80
  same admin -o 0xc0
  same io -o 2 -r -l 512 --cdw12=0
  same io -o 1 -w -l 4096 --cdw12=$((7 | 1 << 30)) --input-file=/dev/zero
  may_differ "the status for it" io -o 2 -r -l 512 --cdw10=BLOCKS
  may_differ "the status for it" io -o 1 -w -l 512 --cdw10=BLOCKS --input-file=/dev/zero
  may_differ "reservations, since 6.13 in the kernel's" io -o 0xe -r -l 4096 --cdw10=1023 --cdw11=1
  may_differ "not in the kernel's" io -o 5 -w -l 512 --input-file=/dev/zero
  same io -o 8 --cdw12=7
  same io -o 9 -w -l 16 --cdw11=4 --input-file=/tmp/within
  may_differ "the status for it" io -o 9 -w -l 16 --cdw11=4 --input-file=/tmp/beyond
  may_differ "not in the kernel's" io -o 0xc --cdw12=7
  same io -o 0
  same io -o 0x7e
}
[ $number = 60 ] || { echo "$number commands were sent, not 60" >&2; exit 1; }
nvme disconnect -n "$name"
nvme disconnect -n "$theirs"
rm "$root/ports/1/subsystems/$theirs"
rmdir "$root/ports/1" "$root/subsystems/$theirs/namespaces/1" "$root/subsystems/$theirs"
losetup --detach "$loop"
[ $wrong = 0 ] || { echo "$wrong commands differ from the kernel's, or have no answer" >&2; exit 1; }
