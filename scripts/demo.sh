#!/usr/bin/env bash
# Demonstration of `make demo`: ordinary MPI programs write and read files on Weft servers. Their results are compared
# with results without Weft, and the layout is shown. Then four comparisons run on emulated devices.
#
# usage: scripts/demo.sh [DIR]   DIR holds programs, references and the cluster (default target/demo)
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mkdir -p "${1:-target/demo}" && cd "${1:-target/demo}" && pwd)
weft=$(cd "${CARGO_TARGET_DIR:-target}" 2>/dev/null && pwd || echo "$PWD/${CARGO_TARGET_DIR:-target}")/release/weft
state=$dir/state
ranks=4
# A demonstration may have more ranks than cores.
mpiexec=(mpiexec.mpich -n $ranks)

if [ -t 1 ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); else bold= plain=; fi
title() { printf "\n%s== %s%s\n" "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*"; }

# median DIRECTORY FIELD: prints the median of a field of the checkpoint runs in a directory.
median() {
    awk -v directory="$1" -v field="$2" '$1 == directory { print $field }' "$emulated/times" | sort -n | sed -n 2p
}

# seconds NANOSECONDS: prints seconds with two digits.
seconds() { awk -v ns="$1" 'BEGIN { printf "%.2f", ns / 1e9 }'; }

# ratio A B: prints A / B with two digits.
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

export WEFT_STATE=$state
# The demonstration has its own cluster, even if another one is configured.
unset WEFT_CLUSTER
. scripts/clusters.sh
emulated=
finish() {
    "$weft" stop --state "$state" >/dev/null 2>&1 || true
    stop_clusters
    [ -z "$emulated" ] || rm -rf --one-file-system "$emulated"
}
trap finish EXIT
run=("$weft" run --state "$state" --idle-exit "2 min")

# ssd_beside_disk DISK SSD: runs the unaligned program on two clusters that differ in their SSDs. Both are emulated
# profiles. Sets gain_synced and gain_on_disks.
ssd_beside_disk() {
    local hdd=$1 ssd=$2 pair=$emulated/$1 small policy began synced flushed
    local -A program=() whole=()
    title "An SSD beside each disk: EMULATED disks $hdd, EMULATED SSDs $ssd, the policy off and on"
    small='fragments_below = "64 KiB"
random_below = "64 KiB"'
    start_cluster "$pair/off" "64 KiB" "module = \"direct\"
emulate = \"$hdd\""
    start_cluster "$pair/on" "64 KiB" "module = \"direct\"
emulate = \"$hdd\"" "size = \"64 MiB\"
policy = \"ibridge\"
emulate = \"$ssd\"
$small"
    echo "Two clusters of four servers. The second has [server.target.ibridge] with policy = \"ibridge\". One unaligned program writes"
    echo "and syncs a file. Then the bytes on the SSDs are written back to the disks."
    for policy in off on; do
        export WEFT_CLUSTER=$pair/$policy/cluster.toml
        began=$(date +%s%N)
        "$weft" run -- "${mpiexec[@]}" "$dir/unaligned" /weft/unaligned.dat
        synced=$(date +%s%N)
        "$weft" flush --quiet
        flushed=$(date +%s%N)
        got=$("$weft" run -- sha256sum /weft/unaligned.dat | cut -d' ' -f1)
        [ "$got" = "$expected" ] || { echo "the checksums differ" >&2; exit 1; }
        program[$policy]=$((synced - began)) whole[$policy]=$((flushed - began))
        show weft run -- "${mpiexec[@]}" ./unaligned /weft/unaligned.dat "&& weft flush"
        echo "policy $policy: the program ends after $(seconds "${program[$policy]}") s, all bytes are on the disks after $(seconds "${whole[$policy]}") s; the checksum matches"
    done
    gain_synced=$(ratio "${program[off]}" "${program[on]}") gain_on_disks=$(ratio "${whole[off]}" "${whole[on]}")
    show weft status "  # bytes on the SSDs"
    "$weft" status | grep -A4 SSD
    stop_clusters
    printf "gain, %s with %s (emulated, direct I/O): %s until the program ends, %s until all bytes are on the disks\n" \
        "$hdd" "$ssd" "$gain_synced" "$gain_on_disks"
}

title "Building Weft and five ordinary MPI programs"
"${CARGO:-cargo}" build --release --quiet -p weft-cli -p weft-preload
mpicc.mpich -O2 -o "$dir/mpiio_records" examples/demo/mpiio_records.c
mpicc.mpich -O2 -o "$dir/unaligned" examples/demo/unaligned.c
mpicc.mpich -O2 -o "$dir/checkpoint" examples/demo/checkpoint.c -lm
mpicc.mpich -O2 -o "$dir/ior_like" examples/delegates/ior_like.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")
for program in mpiio_records hdf5_field unaligned checkpoint ior_like; do
    # One file at a time, because nm prints the paths of several files, and a path may contain "weft".
    if nm -D "$dir/$program" | grep -qi weft; then
        echo "$program must not refer to Weft" >&2
        exit 1
    fi
done
echo "examples/demo/mpiio_records.c  $(wc -l <examples/demo/mpiio_records.c) lines, linked to $(ldd "$dir/mpiio_records" | grep -c libmpich) MPI library and no library of Weft"
echo "examples/demo/hdf5_field.c     $(wc -l <examples/demo/hdf5_field.c) lines, with Debian's parallel HDF5"

title "Starting four servers: two hdd-class and two ssd-class targets"
show weft run --fresh -- mkdir -p /weft/demo
"$weft" run --state "$state" --fresh --idle-exit "2 min" -- mkdir -p /weft/demo
"$weft" --cluster "$state/cluster.toml" status
export WEFT_CLUSTER=$state/cluster.toml

title "An MPI-IO program: $ranks ranks, one shared file, 47,008-byte records"
show weft run -- "${mpiexec[@]}" ./mpiio_records /weft/demo/records.dat
"${run[@]}" -- "${mpiexec[@]}" "$dir/mpiio_records" /weft/demo/records.dat
expected=$("$dir/mpiio_records" --expected $ranks | sha256sum | cut -d' ' -f1)
show weft run -- sha256sum /weft/demo/records.dat
got=$("${run[@]}" -- sha256sum /weft/demo/records.dat | cut -d' ' -f1)
echo "on Weft   $got"
echo "expected  $expected"
[ "$got" = "$expected" ] || { echo "the checksums differ" >&2; exit 1; }

title "A parallel HDF5 program: $ranks ranks, one shared file"
show weft run -- "${mpiexec[@]}" ./hdf5_field /weft/demo/field.h5
"${run[@]}" -- "${mpiexec[@]}" "$dir/hdf5_field" /weft/demo/field.h5
"${mpiexec[@]}" "$dir/hdf5_field" "$dir/reference.h5" >/dev/null
show weft run -- h5dump -H /weft/demo/field.h5
"${run[@]}" -- h5dump -H /weft/demo/field.h5
show weft run -- h5diff reference.h5 /weft/demo/field.h5 "  # the reference is in a local directory"
"${run[@]}" -- h5diff "$dir/reference.h5" /weft/demo/field.h5
echo "h5diff: no differences"

title "Where the bytes are"
for file in records.dat field.h5; do
    show weft getstripe -v /weft/demo/$file
    "$weft" getstripe -v /weft/demo/$file
done
show weft df
"$weft" df

emulated=$(mktemp -d "$dir/emulated.XXXXXX")
ssd_beside_disk hdd-7200 sata-ssd
echo "A current disk collects small writes in its write cache, so an SSD has less to gain than beside the disks of 2010 below."
ssd_beside_disk ibridge-hdd ibridge-ssd
echo "Measured on 4 idle processors: 2.43 for ibridge-hdd, with write-back. This machine has $(nproc), with load $(cut -d' ' -f1 /proc/loadavg);"
echo "busy processors make both gains smaller."
echo "'weft plan TRACE --ssd' predicts the gain of a program; 'scripts/ibridge.sh profiles' measures further disks."

title "A compressed directory: checkpoints of smooth values with noise, on an EMULATED disk"
disk='class = "hdd"
emulate = "hdd-7200"'
start_targets "$emulated/compression" "1 MiB" "$disk"
export WEFT_CLUSTER=$emulated/compression/cluster.toml
show weft mkdir /weft/plain /weft/compressed
"$weft" mkdir /weft/plain /weft/compressed
show weft setstripe --compress zstd /weft/compressed
"$weft" setstripe --compress zstd /weft/compressed
echo "One server with an emulated 7200 RPM disk. Plain and compressed runs alternate. Each rank writes its file and syncs it,"
echo "then reads it. The emulated page cache keeps no synced bytes, so all reads reach the emulated disk."
for round in 1 2 3; do
    for directory in plain compressed; do
        show weft run -- "${mpiexec[@]}" ./checkpoint /weft/$directory 32
        "$weft" run -- "${mpiexec[@]}" "$dir/checkpoint" /weft/$directory 32 | tee "$dir/said"
        grep -q "every byte is right" "$dir/said"
        sed -n "s/.*write+sync \([0-9.]*\) s, read \([0-9.]*\) s.*/$directory \1 \2/p" "$dir/said" >>"$emulated/times"
    done
done
show weft du -sh --both /weft/plain /weft/compressed "  # space, then length"
"$weft" du -sh --both /weft/plain /weft/compressed
"$weft" du -s /weft/plain /weft/compressed >"$emulated/space"
awk -v plain="$(median plain 2)" -v compressed="$(median compressed 2)" -v plain_read="$(median plain 3)" \
    -v compressed_read="$(median compressed 3)" 'NR == 1 { kib = $1 } NR == 2 {
        printf "space       plain %6.1f MiB, compressed %6.1f MiB, plain/compressed %5.2f\n", kib / 1024, $1 / 1024, kib / $1
        printf "write+sync  plain %6.2f s,   compressed %6.2f s,   plain/compressed %5.2f (median, emulated disk)\n",
            plain, compressed, plain / compressed
        printf "read        plain %6.2f s,   compressed %6.2f s,   plain/compressed %5.2f (median, emulated disk)\n",
            plain_read, compressed_read, plain_read / compressed_read
        exit $1 >= kib
    }' "$emulated/space" || { echo "the compressed directory takes no less space than the plain one" >&2; exit 1; }

stop_clusters
unset WEFT_CLUSTER
title "I/O delegates: collective calls of one program on a plain directory, without Weft servers"
directory=$(mktemp -d "$dir/plain.XXXXXX")
pattern=(-c -t 47008 -s 60 -r -v)
echo "$ranks ranks write and read interleaved pieces of 47,008 bytes with MPI_File_write_all and MPI_File_read_all. Runs without and"
echo "with two delegates alternate. Every byte is checked."
for round in 1 2 3; do
    show "${mpiexec[@]}" ./ior_like plain/f "${pattern[@]}"
    "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}" | tee -a "$directory/without"
    show weft run --delegates 2 --over plain -- "${mpiexec[@]}" ./ior_like plain/f "${pattern[@]}"
    "$weft" run --delegates 2 --over "$directory" -- "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}" | tee -a "$directory/with"
done
awk '{ for (at = 1; at < NF; at++) if ($(at + 1) == "s") { total[FILENAME] += $at } }
    END { for (file in total) seconds[file ~ /with$/] = total[file]
        printf "time without delegates %6.2f s, with two %6.2f s, without/with %5.2f (local disk, sums of three runs)\n",
            seconds[0], seconds[1], seconds[0] / seconds[1] }' "$directory/without" "$directory/with"
rm -rf "$directory"

title "Trace, plan, apply, run again: BTIO on six disks and two SSDs, all EMULATED"
echo "Before the plan, stripes are 64 KiB over all eight targets. The SSDs can hold only a part of the files. Runs before and after alternate."
echo "The gain needs 4 processors for four ranks and eight servers: 1.39 was measured there, and 0.94 to 1.07 on 2. This machine has $(nproc)."
KEEP=$dir/plan scripts/plan.sh 3 btio
echo "The heat map of the traced run is $dir/plan/btio.svg"

title "Replicas: trace, plan, replicate, run again faster, compare byte for byte, on four EMULATED disks"
echo "$ranks ranks read pieces of one file in a random order. The replica has the pieces of each rank in its order. Two equal files,"
echo "one with a replica, are read alternately. The scene fails if a byte differs."
KEEP=$dir/replicas PLACES=weft PIECES=1000 scripts/replicas.sh 3 strided

title "Done"
echo "The cluster stays in $state; 'weft run --state $state -- COMMAND' uses it again."
