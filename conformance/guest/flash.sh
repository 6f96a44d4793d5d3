# ext4, in blocks of a page, on emulated flash that is slow enough that delays of this machine do not matter: random
# reads and writes at depth 1 and 16. The host compares fio's results with the model's times for the same requests;
# reads of 3 and 5 blocks of the raw disk mark the begin and end of a measurement (emulated.py).
iscsiadm -m node -T "$PREFIX.flash" -p "$HOST:$FLASH,1" -o new >/dev/null
login flash "$FLASH"
disk=$(device flash "$FLASH")
mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
mount -o noatime,lazytime "$disk" /mnt # no journal for the time of each write
mark() { dd "if=$disk" of=/dev/null bs="$(($1 * 512))" count=1 iflag=direct status=none; }
load() { # load PHASE OP DEPTH REQUESTS
  sync
  mark 3
  fio --name=load --filename=/mnt/load --size=2m --bs=4k "--rw=rand$2" "--iodepth=$3" --ioengine=libaio --direct=1 \
    --norandommap --randrepeat=0 --thread "--io_size=$(($4 * 4))k" --eta=never \
    "--write_lat_log=/tmp/load$1" --per_job_logs=0 --log_avg_msec=0 >/dev/null
  mark 5
  echo "flash $1 $2 $3 $(gzip -9 <"/tmp/load$1_clat.log" | base64 -w 0)"
}
dd if=/dev/urandom of=/mnt/load bs=1M count=2 oflag=direct status=none
load 1 read 1 200
load 2 read 16 800
load 3 write 1 110
load 4 write 16 400
umount /mnt
e2fsck -fn "$disk"
logout flash "$FLASH"
