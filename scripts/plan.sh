#!/usr/bin/env bash
# Demonstration of `make plan`: trace, plan, apply, and run again in real time. BTIO and a parallel HDF5 program run on
# eight servers: six with an EMULATED disk, and two with an EMULATED SSD that can hold only a part of the files.
#
# usage: scripts/plan.sh [ROUNDS [PROGRAM...]]     alternating runs before and after the plan, ROUNDS each (default 5);
#                                                 programs: btio, btio-rows, hdf5
#
# The control of each round is the same program on a plain local directory, without Weft and without emulation.
#
# Environment: HDD and SSD are the emulated profiles, CAPACITY the bytes that layouts may reserve on each SSD, MODULE the
# I/O module of the targets, STRIPE the stripe size before the plan, PLANNER the planner. STEPS is the number of BTIO
# steps (10 MiB each), ROW_STEPS that of BTIO by rows, SIDE the side of the HDF5 program's field. PROFILE=1 measures the
# cluster first. KEEP is a directory for traces, plans and plots.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
shift || true
[ $# -gt 0 ] || set -- btio btio-rows hdf5
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "$PWD/target/plan.XXXXXX")
keep=${KEEP:-$dir}
mkdir -p "$keep"
unset WEFT_CLUSTER WEFT_STATE
. scripts/clusters.sh
. scripts/spread.sh
trap 'stop_clusters; rm -rf --one-file-system "$dir"' EXIT

hdd=${HDD:-psa-hdd} ssd=${SSD:-psa-ssd} capacity=${CAPACITY:-40 MiB} module=${MODULE:-buffered} stripe=${STRIPE:-64 KiB}
mpiexec=(mpiexec.mpich -n 4)
mpicc.mpich -O2 -o "$dir/btio" examples/demo/btio.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")

disk="class = \"hdd\"
module = \"$module\"
emulate = \"$hdd\""
flash="class = \"ssd\"
module = \"$module\"
emulate = \"$ssd\"
capacity = \"$capacity\""
start_targets "$dir/cluster" "$stripe" "$disk" "$disk" "$disk" "$disk" "$disk" "$disk" "$flash" "$flash"
export WEFT_CLUSTER=$dir/cluster/cluster.toml
echo "# six disks ($hdd) and two SSDs ($ssd, capacity $capacity each), all EMULATED; module $module, stripe size $stripe before"
echo "# $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg) at the start; seconds for writing, syncing and reading"

# once PROGRAM FILE ...: runs the program on a new file and prints the seconds that it reports for writing and reading.
once() {
    local program=$1 file=$2
    shift 2
    "$weft" rm -f "$file"
    "$weft" run -- "${mpiexec[@]}" "$dir/$program" "$file" "$@" >"$dir/said"
    reported
}

# local_once PROGRAM ...: the same program on a file of a local directory.
local_once() {
    local program=$1
    shift
    rm -f "$dir/local-file"
    "${mpiexec[@]}" "$dir/$program" "$dir/local-file" "$@" >"$dir/said"
    reported
    rm -f "$dir/local-file"
}

# reported: prints the seconds for writing and reading that the program has said.
reported() {
    grep -q "value is right" "$dir/said"
    sed -n 's/.*write+[a-z]* \([0-9.]*\) s, read \([0-9.]*\) s.*/\1 \2/p' "$dir/said" | awk '{ printf "%.2f\n", $1 + $2 }'
}

show() { printf '$ %s\n' "$*"; }

# compare NAME PROGRAM FILE ...: traces, plans, applies to another directory, and runs in both directories alternately.
compare() {
    local name=$1 program=$2 file=$3 round
    shift 3
    "$weft" run -- mkdir -p "/weft/before/$name" "/weft/after/$name"
    show weft run --trace "$name.wtrace" -- "${mpiexec[@]}" "./$program /weft/before/$name/$file" "$@"
    "$weft" run --trace "$keep/$name.wtrace" -- "${mpiexec[@]}" "$dir/$program" "/weft/before/$name/$file" "$@" 2>"$dir/noise" ||
        { cat "$dir/noise" >&2; return 1; }
    show weft trace plot "$name.wtrace --output $name.svg"
    "$weft" trace plot "$keep/$name.wtrace" --output "$keep/$name.svg"
    show weft plan "$name.wtrace --output $name.toml"
    "$weft" plan "$keep/$name.wtrace" --planner "${PLANNER:-best}" --output "$keep/$name.toml"
    show weft apply "$name.toml --map /weft/before=/weft/after"
    "$weft" apply "$keep/$name.toml" --map /weft/before=/weft/after
    : >"$dir/before"
    : >"$dir/after"
    : >"$dir/local"
    for ((round = 1; round <= rounds; round++)); do
        once "$program" "/weft/before/$name/$file" "$@" >>"$dir/before"
        once "$program" "/weft/after/$name/$file" "$@" >>"$dir/after"
        local_once "$program" "$@" >>"$dir/local"
        printf '%s, round %s of %s: before the plan %s s, after it %s s, local directory %s s\n' "$name" "$round" "$rounds" \
            "$(tail -1 "$dir/before")" "$(tail -1 "$dir/after")" "$(tail -1 "$dir/local")"
    done
    show weft getstripe -v "/weft/after/$name/$file"
    "$weft" getstripe -v "/weft/after/$name/$file"
    printf '%s: before %s s, after %s s, before/after %s (emulated devices); local directory %s s\n' "$name" \
        "$(spread <"$dir/before")" "$(spread <"$dir/after")" "$(gain "$dir/before" "$dir/after")" "$(spread <"$dir/local")"
    # Releases the reserved space of the SSDs.
    "$weft" rm "/weft/before/$name/$file" "/weft/after/$name/$file"
}

if [ "${PROFILE:-}" = 1 ]; then
    show weft profile --quick
    "$weft" profile --quick
fi
for program in "$@"; do
    echo
    case $program in
    btio) compare btio btio bt.dat "${STEPS:-12}" ;;
    btio-rows) compare btio-rows btio bt.dat "${ROW_STEPS:-2}" 64 simple ;;
    hdf5) compare hdf5 hdf5_field field.h5 "${SIDE:-4096}" ;;
    *)
        echo "programs: btio, btio-rows, hdf5; there is no $program" >&2
        exit 2
        ;;
    esac
done
