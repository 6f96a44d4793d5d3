# The tgtd of rig.sh: sourced by it, or run where one that was killed shall be there again.
#
# target_start   serves $IMAGE on a free port; its process and its portal are then in $WORK/target
# target_stop    ends what was started last
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../path/tgtd.sh"

target_start() {
  rm -f "$WORK"/tgt.ctl*
  tgtd_start "$IMAGE"
  disown "$TGTD_PID" # whoever kills it need not hear of it
  tgt --mode logicalunit --op update --tid 1 --lun 1 --params thin_provisioning=1
  echo "$TGTD_PID ${TGT_PORTALS[0]}" >"$WORK/target"
}

target_stop() {
  if [ -e "$WORK/target" ]; then
    read -r TGTD_PID _ <"$WORK/target"
    tgtd_stop
    rm -f "$WORK/target"
  fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  target_start
fi
