#!/usr/bin/env bash
# Trace, plan, apply, run again, in real time: BTIO and a parallel HDF5 program on eight servers, six with an EMULATED disk
# and two with an EMULATED SSD that has room for a part of the files only. Behind `make plan`.
#
# usage: scripts/plan.sh [ROUNDS]     each program so many times before and after the plan, in turns (default 5)
#
# HDD and SSD name the profiles that are emulated, ROOM what layouts may promise of each SSD, MODULE how targets are written,
# STRIPE the stripe size before, STEPS the steps of BTIO (10 MiB each), PLANNER whose layouts are taken, KEEP a directory for
# traces, plans and pictures.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "$PWD/target/plan.XXXXXX")
keep=${KEEP:-$dir}
mkdir -p "$keep"
unset WEFT_CLUSTER WEFT_STATE
. scripts/clusters.sh
trap 'stop_clusters; rm -rf --one-file-system "$dir"' EXIT

hdd=${HDD:-psa-hdd} ssd=${SSD:-psa-ssd} room=${ROOM:-24 MiB} module=${MODULE:-buffered} stripe=${STRIPE:-64 KiB}
mpiexec=(mpiexec.mpich -n 4)
mpicc.mpich -O2 -o "$dir/btio" examples/demo/btio.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")

disk="class = \"hdd\"
module = \"$module\"
emulate = \"$hdd\""
flash="class = \"ssd\"
module = \"$module\"
emulate = \"$ssd\"
room = \"$room\""
start_targets "$dir/cluster" "$stripe" "$disk" "$disk" "$disk" "$disk" "$disk" "$disk" "$flash" "$flash"
export WEFT_CLUSTER=$dir/cluster/cluster.toml
echo "# six disks ($hdd) and two SSDs ($ssd, room for $room each), all EMULATED; module $module, stripes of $stripe before"
echo "# $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg) at the start; seconds that the programs wrote, synced and read for"

# once PROGRAM FILE ...: runs it on a new file and prints the seconds that it says to have written and read for.
once() {
    local program=$1 file=$2
    shift 2
    "$weft" rm -f "$file"
    "$weft" run -- "${mpiexec[@]}" "$dir/$program" "$file" "$@" >"$dir/said"
    grep -q "value is right" "$dir/said"
    sed -n 's/.*write+[a-z]* \([0-9.]*\) s, read \([0-9.]*\) s.*/\1 \2/p' "$dir/said" | awk '{ printf "%.2f\n", $1 + $2 }'
}

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# compare NAME PROGRAM FILE ...: trace, plan, apply to another directory, and both in turns.
compare() {
    local name=$1 program=$2 file=$3 round
    shift 3
    echo
    echo "== $name"
    "$weft" run -- mkdir -p "/weft/before/$name" "/weft/after/$name"
    "$weft" run --trace "$keep/$name.wtrace" -- "${mpiexec[@]}" "$dir/$program" "/weft/before/$name/$file" "$@"
    "$weft" trace plot "$keep/$name.wtrace" --output "$keep/$name.svg"
    "$weft" plan "$keep/$name.wtrace" --planner "${PLANNER:-best}" --output "$keep/$name.toml"
    "$weft" apply "$keep/$name.toml" --map /weft/before=/weft/after
    : >"$dir/before"
    : >"$dir/after"
    for ((round = 1; round <= rounds; round++)); do
        once "$program" "/weft/before/$name/$file" "$@" | tee -a "$dir/before" | sed "s/^/$name round $round before the plan, s: /"
        once "$program" "/weft/after/$name/$file" "$@" | tee -a "$dir/after" | sed "s/^/$name round $round after the plan, s:  /"
    done
    "$weft" getstripe -v "/weft/after/$name/$file"
    awk -v name="$name" -v before="$(median <"$dir/before")" -v after="$(median <"$dir/after")" \
        'BEGIN { printf "%s, median: before %.2f s, after %.2f s, before/after %.2f (emulated devices)\n", name, before, after, before / after }'
}

compare btio btio bt.dat "${STEPS:-12}"
compare btio-rows btio bt.dat "${ROW_STEPS:-2}" 64 simple
compare hdf5 hdf5_field field.h5
