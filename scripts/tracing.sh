#!/usr/bin/env bash
# Cost of tracing.
#
# usage: scripts/tracing.sh [CASE...]
#
# calls: processor time of a call on a file in the page cache, in ns: without the library, with it, and with tracing
# (including compression and writing of the trace). Other load on the machine does not affect it.
#
# KIND-PLACE-SIZE: a traced and an untraced process alternate every few milliseconds, so that other load on the machine
# affects both. The untraced process is `plain` (without the library) or `library` (with it, without tracing). KIND is
# pread, pwrite, read, write (page cache) or sync (a write and fdatasync). PLACE is dir (a plain directory, DIR) or weft
# (by descriptor). SIZE is 4k, 64k or 1024k. A row has the median ratio of traced to untraced time over TURNS (400)
# turns, the ratio of the sums of all turns, and the median time of a call in us.
#
# ior-dir, ior-weft, ior-sync (dir, synced): complete IOR runs with 4 ranks and 64 KiB, with and without tracing (ROUNDS,
# 11). A row has the median ratio of traced to untraced time of a round. IOR and MPIEXEC are the programs.
#
# btio-PROFILE, rows-PROFILE: complete runs of the demonstration's BTIO, an MPI-IO program that waits for disks, on four
# servers whose disks are EMULATED with this profile; collective steps of 10 MiB, or 1,280 B per write.
set -euo pipefail
cd "$(dirname "$0")/.."
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(calls sync-dir-4k sync-dir-64k sync-weft-64k write-dir-4k read-dir-4k write-dir-64k
    read-dir-64k write-dir-1024k write-weft-4k read-weft-4k write-weft-64k read-weft-64k write-weft-1024k)
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
weft=$target/release/weft turns=${TURNS:-400} rounds=${ROUNDS:-11}
mkdir -p target
dir=$(mktemp -d "${DIR:-$PWD/target}/tracing.XXXXXX")
unset WEFT_CLUSTER WEFT_STATE LD_PRELOAD
. scripts/clusters.sh
trap 'stop_clusters; "$weft" stop --cluster "$dir/state/cluster.toml" >/dev/null 2>&1 || true; rm -rf --one-file-system "$dir"' EXIT
mkdir "$dir/plain"
cc -O2 -w -o "$dir/load" scripts/tracing.c
"$weft" run --state "$dir/state" -- true

# Print the command prefix for a traced and for an untraced run.
traced() { echo "$weft run $1 --trace $dir/a.wtrace --"; }
library() { echo "$weft run ${1---state $dir/state} --"; }

calls() {
    local round how
    for ((round = 0; round < 3; round++)); do
        "$dir/load" calls "$dir/plain/f" | sed 's/^/plain /'
        $(library) "$dir/load" calls "$dir/plain/f" | sed 's/^/library /'
        $(traced --no-cluster) "$dir/load" calls "$dir/plain/f" 2>/dev/null | sed 's/^/traced /'
    done >"$dir/times"
    printf '%-14s %9s %11s %10s %15s\n' call plain_ns library_ns traced_ns traced-library
    awk '!(($1, $2) in least) || $3 < least[$1, $2] { least[$1, $2] = $3 }
         !seen[$2]++ { order[++n] = $2 }
         END { for (i = 1; i <= n; i++) { c = order[i]
               printf "%-14s %9d %11d %10d %15d\n", c, least["plain", c], least["library", c], least["traced", c],
                      least["traced", c] - least["library", c] } }' "$dir/times"
}

# in_turns KIND PLACE SIZE
in_turns() {
    local len=$((${3%k} * 1024)) count place=$dir/plain how="--no-cluster" against
    case $1-$3 in sync-*) count=20 ;; *-4k) count=2000 ;; *-64k) count=400 ;; *) count=40 ;; esac
    [ "$2" = dir ] || place=/weft how="--state $dir/state"
    for against in plain library; do
        local before=
        [ $against = plain ] || before=$(library)
        [ $against-$2 != plain-weft ] || continue
        printf '%-18s %-8s %s\n' "$1-$2-$3" $against "$("$dir/load" turns "$turns" $count \
            "$before '$dir/load' work $place/a $1 $len $count" \
            "$(traced "$how") '$dir/load' work $place/b $1 $len $count 2>/dev/null")"
    done | awk '{ printf "%-18s %-8s %8s %8s %11s %9s\n", $1, $2, $3, $4, $5, $6 }'
}

# whole NAME PROGRAM...: alternating traced and untraced runs of a program that takes a command prefix and prints seconds.
# Both have a cluster, so that they only differ in tracing.
whole() {
    local name=$1 where="--state $dir/state" round how
    shift
    [ -z "${WEFT_CLUSTER-}" ] || where=
    local before=("$(library "$where")" "$(traced "$where")")
    for ((round = 0; round < rounds; round++)); do
        for how in $((round % 2)) $(((round + 1) % 2)); do
            echo "$round $how $("$@" ${before[how]})"
        done
    done | awk '{ time[$1, $2] = $3 } END { for (i = 0; (i, 0) in time; i++) print time[i, 1] / time[i, 0], time[i, 0], time[i, 1] }' |
        sort -g | awk -v name="$name" '
        { ratio[NR] = $1; first += $2; second += $3 }
        END { printf "%-18s %-8s %8.3f %8.3f %9.2f s %7.2f s\n", name, "library",
                     ratio[int((NR + 1) / 2)], second / first, first / NR, second / NR }'
}

# ior PLACE PREFIX...
ior() {
    local place=$dir/plain with=() size=128m
    [ "$1" != weft ] || place=/weft
    [ "$1" != sync ] || with=(-Y) size=4m
    shift
    "$@" "${MPIEXEC:-mpiexec}" -n 4 "${IOR:-ior}" -a POSIX -t 64k -b $size "${with[@]}" -w -r -C -o "$place/ior" 2>/dev/null |
        awk '/^(write|read) / && NF < 15 { sum += $(NF - 1) } END { print sum }'
}

# btio ARGUMENTS PREFIX...
btio() {
    local arguments=$1
    shift
    "$@" mpiexec.mpich -n 4 "$dir/btio" /weft/btio $arguments 2>/dev/null |
        sed -n 's/.*write+sync \([0-9.]*\) s, read \([0-9.]*\) s.*is right.*/\1 \2/p' | awk '{ print $1 + $2 }'
}

# emulated NAME PROFILE ARGUMENTS: BTIO on its own servers.
emulated() {
    mpicc.mpich -O2 -o "$dir/btio" examples/demo/btio.c
    start_cluster "$dir/emulated" "64 KiB" "emulate = \"$2\""
    WEFT_CLUSTER=$dir/emulated/cluster.toml whole "$1" btio "$3"
    stop_clusters
    rm -rf --one-file-system "$dir/emulated"
}

echo "# $(uname -sr), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg); plain files on $(stat -f -c %T "$dir/plain")"
if [ "${cases[0]}" = calls ]; then
    calls
    cases=("${cases[@]:1}")
    echo
fi
[ ${#cases[@]} -gt 0 ] || exit 0
printf '%-18s %-8s %8s %8s %11s %9s\n' case against median together untraced_us traced_us
for case in "${cases[@]}"; do
    case $case in
    ior-*) whole "$case" ior "${case#ior-}" ;;
    btio-*) emulated "$case" "${case#btio-}" 24 ;;
    rows-*) emulated "$case" "${case#rows-}" "2 64 simple" ;;
    *)
        IFS=- read -r kind place size <<<"$case"
        in_turns "$kind" "$place" "$size"
        ;;
    esac
done
