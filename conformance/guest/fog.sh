# Figures 3 and 5 of the flash operation group paper: each job of fio is bound to a CPU and so to a queue, which is a
# stream. The host sets NVME3, NVME5, SUBSYSTEM, PHASE (seconds), REQUESTS and REGION (bytes).
modprobe nvme_tcp
disk=/dev/nvme0n1
attach() { # attach PORT
  nvme connect -t tcp -a "$HOST" -s "$1" -n "$SUBSYSTEM" -i 8 -Q 64 -d -k 15
  until_works test -b "$disk"
  udevadm settle
  for queue in /sys/block/nvme0c*n1/queue /sys/block/nvme0n1/queue; do
    echo 2 >"$queue/nomerges"
    if [ -w "$queue/scheduler" ]; then echo none >"$queue/scheduler"; fi
  done
  cat /sys/block/nvme0c*n1/mq/*/cpu_list | sort -n | tr '\n' ' ' | grep -qx '0 1 2 3 4 5 6 7 '
}
detach() { udevadm settle; nvme disconnect -n "$SUBSYSTEM"; }
common=(--ioengine=libaio --direct=1 --bs=16k --iodepth=32 "--filename=$disk" --norandommap --randrepeat=0 --group_reporting=0)
# job NUMBER KIND OPTION...
job() { jobs+=("--name=s$1$2" "--rw=$2" "--cpus_allowed=$(($1 - 1))" "--offset=$((($1 - 1) * REGION))" "--size=$REGION" "${@:3}"); }
run() { timeout "$1" fio "${common[@]}" "${jobs[@]}" --output-format=terse --terse-version=3 | cut -d';' -f3,5,7,8,48,49; }
attach "$NVME3"
jobs=()
job 1 randread --time_based "--runtime=$((3 * PHASE))"
job 2 randread --time_based "--runtime=$PHASE" "--startdelay=$PHASE"
job 2 randwrite --time_based "--runtime=$PHASE" "--startdelay=$((2 * PHASE))"
run $((3 * PHASE + 120))
detach
attach "$NVME5"
jobs=()
for number in 1 2 3 4 5 6 7 8; do
  case $number in [123]) kind=randread ;; [45]) kind=randrw ;; *) kind=randwrite ;; esac
  job "$number" "$kind" "--io_size=$((REQUESTS * 16384))"
done
run 400
detach
