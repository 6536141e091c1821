#!/usr/bin/env bash
# The demonstration behind `make demo`: two ordinary MPI programs write and read shared files on four Weft servers,
# their results are checked against ones that never touched Weft, and the layout is shown.
#
# usage: scripts/demo.sh [DIR]   DIR holds programs, references and the cluster (default target/demo)
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mkdir -p "${1:-target/demo}" && cd "${1:-target/demo}" && pwd)
weft=$(cd "${CARGO_TARGET_DIR:-target}" 2>/dev/null && pwd || echo "$PWD/${CARGO_TARGET_DIR:-target}")/release/weft
state=$dir/state
ranks=4
# More ranks than cores is fine for a demonstration.
mpiexec=(mpiexec.mpich -n $ranks)

if [ -t 1 ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); else bold= plain=; fi
title() { printf "\n%s== %s%s\n" "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*"; }

export WEFT_STATE=$state
# Whatever cluster is configured here, the demonstration has its own.
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

title "Building Weft and two ordinary MPI programs"
"${CARGO:-cargo}" build --release --quiet -p weft-cli -p weft-preload
mpicc.mpich -O2 -o "$dir/mpiio_records" examples/demo/mpiio_records.c
mpicc.mpich -O2 -o "$dir/unaligned" examples/demo/unaligned.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")
for program in mpiio_records hdf5_field unaligned; do
    # One at a time: of several files nm prints the paths, and this folder may well be called weft.
    if nm -D "$dir/$program" | grep -qi weft; then
        echo "$program was to know nothing of Weft" >&2
        exit 1
    fi
done
echo "examples/demo/mpiio_records.c  $(wc -l <examples/demo/mpiio_records.c) lines, linked to $(ldd "$dir/mpiio_records" | grep -c libmpich) MPI library and to nothing of Weft"
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
show weft run -- h5diff reference.h5 /weft/demo/field.h5 "  # the reference was written to a local directory"
"${run[@]}" -- h5diff "$dir/reference.h5" /weft/demo/field.h5
echo "h5diff: no differences"

title "Where the bytes are"
for file in records.dat field.h5; do
    show weft getstripe -v /weft/demo/$file
    "$weft" getstripe -v /weft/demo/$file
done
show weft df
"$weft" df

title "An SSD beside each disk: one unaligned program, the policy off and on, on EMULATED disks and SSDs"
emulated=$(mktemp -d "$dir/emulated.XXXXXX")
disk='module = "direct"
emulate = "ibridge-hdd"'
small='fragments_below = "64 KiB"
random_below = "64 KiB"'
start_cluster "$emulated/off" "64 KiB" "$disk"
start_cluster "$emulated/on" "64 KiB" "$disk" "size = \"64 MiB\"
policy = \"ibridge\"
emulate = \"ibridge-ssd\"
$small"
echo "Two clusters of four servers, their disks 7200 RPM ones of 2010, emulated. The second has [server.target.ibridge]:"
echo "policy = \"ibridge\", on an emulated SSD of 2010. Time is until every byte is on the disks, synced."
for policy in off on; do
    export WEFT_CLUSTER=$emulated/$policy/cluster.toml
    began=$(date +%s%N)
    "$weft" run -- "${mpiexec[@]}" "$dir/unaligned" /weft/unaligned.dat
    "$weft" flush --quiet
    took=$(($(date +%s%N) - began))
    got=$("$weft" run -- sha256sum /weft/unaligned.dat | cut -d' ' -f1)
    [ "$got" = "$expected" ] || { echo "the checksums differ" >&2; exit 1; }
    show weft run -- "${mpiexec[@]}" ./unaligned /weft/unaligned.dat "&& weft flush"
    printf "policy %-4s %6.2f s (emulated devices), the checksum is right\n" "$policy:" "${took}e-9"
    eval "$policy=\$took"
done
printf "off/on     %6.2f\n" "$(echo "$off $on" | awk '{print $1 / $2}')"
show weft status "  # what went to the SSDs"
"$weft" status | grep -A4 SSD

stop_clusters
unset WEFT_CLUSTER
title "Trace, plan, apply, run again: BTIO on six disks and two SSDs, all EMULATED"
echo "The stripes before the plan are 64 KiB over all eight; the SSDs have room for a part of the files only. Each run is timed in turns."
KEEP=$dir/plan scripts/plan.sh 3 btio
echo "The heat map of the traced run is $dir/plan/btio.svg"

title "Done"
echo "The cluster stays under $state; 'weft run --state $state -- COMMAND' uses it again."
