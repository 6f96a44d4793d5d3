# Starts and stops a tgtd. Sourced by scripts that have set WORK.
#
# tgtd_start FILE   serves FILE as LUN 1 of TGT_NAME on two free ports of one portal group; sets
#                   TGT_PORTALS (host:port of both) and TGTD_PID
# tgtd_stop         stops it if it runs

TGT_NAME=iqn.2026-11.org.example:tgt
TGTD_PID=
export TGT_IPC_SOCKET=$WORK/tgt.ctl
PATH=$PATH:/usr/sbin:/sbin

tgt() { tgtadm -C 7 --lld iscsi "$@"; }

tgtd_start() {
  tgtd -f -C 7 --iscsi portal=127.0.0.1:0,portal=127.0.0.1:0 >"$WORK/tgtd.log" 2>&1 &
  TGTD_PID=$!
  for _ in $(seq 100); do
    mapfile -t TGT_PORTALS < <(tgt --mode portal --op show 2>/dev/null | sed -n 's/^Portal: \(127[^,]*\),.*/\1/p')
    if [ ${#TGT_PORTALS[@]} = 2 ] || ! kill -0 "$TGTD_PID" 2>/dev/null; then break; fi
    sleep 0.1
  done
  [ ${#TGT_PORTALS[@]} = 2 ] || { echo "tgtd did not start: $(tail -3 "$WORK/tgtd.log")" >&2; return 1; }
  tgt --mode target --op new --tid 1 --targetname "$TGT_NAME"
  tgt --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$1"
  tgt --mode target --op bind --tid 1 --initiator-address ALL
}

# tgtd ignores SIGTERM, and may wait for sessions when tgtadm ends it.
tgtd_stop() {
  [ -n "$TGTD_PID" ] || return 0
  kill -9 "$TGTD_PID" 2>/dev/null || true
  wait "$TGTD_PID" 2>/dev/null || true
  TGTD_PID=
}
