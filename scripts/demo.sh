#!/usr/bin/env bash
# Demonstration of `make demo`: ordinary MPI programs write and read files on Weft servers. Their results are compared
# with results without Weft, and the layout is shown. Then four comparisons run on emulated devices.
#
# Every figure is the median of alternating runs with its range, beside the same program on a plain local directory in
# the same run. All settings and all conditions of failure are printed first, from the variables that are used.
#
# usage: scripts/demo.sh [DIR]   DIR holds programs, references and the cluster (default target/demo)
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mkdir -p "${1:-target/demo}" && cd "${1:-target/demo}" && pwd)
weft=$(cd "${CARGO_TARGET_DIR:-target}" 2>/dev/null && pwd || echo "$PWD/${CARGO_TARGET_DIR:-target}")/release/weft
state=$dir/state
idle="2 min"
rounds=3
ranks=4
stripe="64 KiB"
# Settings of the SSD beside each disk.
ssd_policy=ibridge ssd_size="64 MiB" ssd_below="64 KiB"
# The disks and SSDs of each comparison, by their profile.
disk_today=hdd-7200 ssd_today=sata-ssd disk_paper=ibridge-hdd ssd_paper=ibridge-ssd
codec=zstd checkpoint_mib=32
delegates=2
plan_hdd=psa-hdd plan_ssd=psa-ssd plan_capacity="40 MiB" plan_steps=12
replica_hdd=hdd-7200 replica_size=16384 replica_pieces=1000
# A demonstration may have more ranks than cores.
mpiexec=(mpiexec.mpich -n $ranks)

if [ -t 1 ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); else bold= plain=; fi
title() { printf "\n%s== %s%s\n" "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*"; }
# seconds NANOSECONDS: prints seconds.
seconds() { awk -v ns="$1" 'BEGIN { printf "%.3f\n", ns / 1e9 }'; }
fail() { echo "demo: $*" >&2; exit 1; }

export WEFT_STATE=$state
# The demonstration has its own cluster, even if another one is configured.
unset WEFT_CLUSTER
. scripts/clusters.sh
. scripts/spread.sh
scratch=
finish() {
    "$weft" stop --state "$state" >/dev/null 2>&1 || true
    stop_clusters
    [ -z "$scratch" ] || rm -rf --one-file-system "$scratch"
}
trap finish EXIT
run=("$weft" run --state "$state" --idle-exit "$idle")

# build: builds the command. A terminal shows cargo's progress bar, a log one line for every 25 crates.
build() {
    if [ -t 2 ]; then
        "${CARGO:-cargo}" build --release -p weft-cli -p weft-preload
    else
        "${CARGO:-cargo}" build --release -p weft-cli -p weft-preload 2>&1 |
            awk '/^ +Compiling / { if (++count % 25 == 0) { print count " crates compiled"; fflush() } next }
                /^ +(Downloaded|Downloading|Updating|Locking|Adding) / { next } { print; fflush() }'
    fi
}

# compare NAME UNIT rate|time FIELD...: compares rates or times of files $scratch/NAME.weft and $scratch/NAME.local, which
# have a column for each FIELD.
compare() {
    local name=$1 unit=$2 direction=$3 what field=0 over
    shift 3
    for what in "$@"; do
        field=$((field + 1))
        column $field "$scratch/$name.weft" >"$scratch/one"
        column $field "$scratch/$name.local" >"$scratch/other"
        if [ "$direction" = rate ]; then over=$(gain "$scratch/one" "$scratch/other"); else over=$(gain "$scratch/other" "$scratch/one"); fi
        printf '%-11s Weft %s %s, local directory %s %s; speed of Weft over local %s\n' "$what" \
            "$(spread <"$scratch/one")" "$unit" "$(spread <"$scratch/other")" "$unit" "$over"
    done
}

# ssd_beside_disk DISK SSD: runs the unaligned program alternately on two clusters that differ in their SSDs, and on a
# local directory. Both are emulated profiles. The times are in $scratch/DISK.*.
ssd_beside_disk() {
    local hdd=$1 ssd=$2 pair=$scratch/$1 policy round began synced flushed
    title "An SSD beside each disk: EMULATED disks $hdd, EMULATED SSDs $ssd, the policy off and on"
    start_cluster "$pair/off" "$stripe" "module = \"direct\"
emulate = \"$hdd\""
    start_cluster "$pair/on" "$stripe" "module = \"direct\"
emulate = \"$hdd\"" "size = \"$ssd_size\"
policy = \"$ssd_policy\"
emulate = \"$ssd\"
fragments_below = \"$ssd_below\"
random_below = \"$ssd_below\""
    echo "Two clusters of four servers. The second has [server.target.ibridge] with policy = \"$ssd_policy\" for pieces below $ssd_below."
    echo "One unaligned program writes and syncs a file. Then the bytes on the SSDs are written back to the disks."
    for ((round = 1; round <= rounds; round++)); do
        for policy in off on; do
            export WEFT_CLUSTER=$pair/$policy/cluster.toml
            "$weft" rm -f /weft/unaligned.dat
            [ $round -gt 1 ] || show weft run -- "${mpiexec[@]}" ./unaligned /weft/unaligned.dat "&& weft flush   # policy $policy"
            began=$(date +%s%N)
            "$weft" run -- "${mpiexec[@]}" "$dir/unaligned" /weft/unaligned.dat
            synced=$(date +%s%N)
            "$weft" flush --quiet
            flushed=$(date +%s%N)
            got=$("$weft" run -- sha256sum /weft/unaligned.dat | cut -d' ' -f1)
            [ "$got" = "$expected" ] || fail "/weft/unaligned.dat, policy $policy: the checksums differ"
            seconds $((synced - began)) >>"$scratch/$hdd.$policy.program"
            seconds $((flushed - began)) >>"$scratch/$hdd.$policy.whole"
        done
        began=$(date +%s%N)
        "${mpiexec[@]}" "$dir/unaligned" "$scratch/local/unaligned.dat"
        seconds $(($(date +%s%N) - began)) >>"$scratch/$hdd.local"
        rm "$scratch/local/unaligned.dat"
    done
    show weft status "  # bytes on the SSDs"
    "$weft" status | grep -A4 SSD
    stop_clusters
    for policy in off on; do
        printf 'policy %-3s the program takes %s s, all bytes are on the disks after %s s\n' "$policy," \
            "$(spread <"$scratch/$hdd.$policy.program")" "$(spread <"$scratch/$hdd.$policy.whole")"
    done
    printf 'local directory, not emulated: the program takes %s s\n' "$(spread <"$scratch/$hdd.local")"
    printf 'gain, %s with %s (emulated, direct I/O): %s until the program ends, %s until all bytes are on the disks\n' \
        "$hdd" "$ssd" "$(gain "$scratch/$hdd.off.program" "$scratch/$hdd.on.program")" \
        "$(gain "$scratch/$hdd.off.whole" "$scratch/$hdd.on.whole")"
}

title "Settings of this demonstration"
cat <<END
A figure such as 2.43 (2.31 to 2.50) is the median of $rounds runs and their range. Gains are ratios of runs of the same round.

all programs        $ranks ranks, records of 47,008 bytes where a file is shared; servers exit $idle after their last use
SSD beside a disk   [server.target.ibridge] policy = "$ssd_policy", size = "$ssd_size", fragments_below = random_below = "$ssd_below"
                    four servers, stripes of $stripe, direct I/O; disks $disk_today with SSDs $ssd_today, then $disk_paper with $ssd_paper
compression         $codec; one server, disk $disk_today; $checkpoint_mib MiB for each rank
I/O delegates       $delegates, on a plain directory
plan                six disks $plan_hdd, two SSDs $plan_ssd with capacity = "$plan_capacity"; stripes of $stripe before; BTIO of $plan_steps steps
replicas            four disks $replica_hdd; $replica_pieces pieces of $replica_size bytes for each rank

Device profiles are EMULATED: targets take the time of the modeled device, in real time ('weft profile' and
docs/reference/models.md describe them). The control of each figure is the same program on a plain local directory of this
machine, in the same round. It is not emulated, so it only shows what this machine does without Weft.

The demonstration fails if a program ends with an error, if a checksum or a byte differs, if h5diff finds a difference, or if
the compressed directory takes as much space as the plain one. No ratio of times makes it fail.
END

title "Building Weft and five ordinary MPI programs (8 minutes on two cores in a fresh clone)"
build
mpicc.mpich -O2 -o "$dir/mpiio_records" examples/demo/mpiio_records.c
mpicc.mpich -O2 -o "$dir/unaligned" examples/demo/unaligned.c
mpicc.mpich -O2 -o "$dir/checkpoint" examples/demo/checkpoint.c -lm
mpicc.mpich -O2 -o "$dir/ior_like" examples/delegates/ior_like.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")
for program in mpiio_records hdf5_field unaligned checkpoint ior_like; do
    # One file at a time, because nm prints the paths of several files, and a path may contain "weft".
    if nm -D "$dir/$program" | grep -qi weft; then
        fail "$program must not refer to Weft"
    fi
done
echo "examples/demo/mpiio_records.c  $(wc -l <examples/demo/mpiio_records.c) lines, linked to $(ldd "$dir/mpiio_records" | grep -c libmpich) MPI library and no library of Weft"
echo "examples/demo/hdf5_field.c     $(wc -l <examples/demo/hdf5_field.c) lines, with Debian's parallel HDF5"
scratch=$(mktemp -d "$dir/scratch.XXXXXX")
mkdir "$scratch/local"

title "Starting four servers: two hdd-class and two ssd-class targets"
show weft run --fresh --yes -- mkdir -p /weft/demo
"$weft" run --state "$state" --fresh --yes --idle-exit "$idle" -- mkdir -p /weft/demo
"$weft" --cluster "$state/cluster.toml" status
export WEFT_CLUSTER=$state/cluster.toml

title "An MPI-IO program: $ranks ranks, one shared file, 47,008-byte records"
show weft run -- "${mpiexec[@]}" ./mpiio_records /weft/demo/records.dat
show "${mpiexec[@]}" ./mpiio_records local/records.dat "  # the control, alternately"
for ((round = 1; round <= rounds; round++)); do
    "${run[@]}" -- "${mpiexec[@]}" "$dir/mpiio_records" /weft/demo/records.dat | tee "$scratch/said.weft"
    "${mpiexec[@]}" "$dir/mpiio_records" "$scratch/local/records.dat" >"$scratch/said.local"
    for where in weft local; do
        sed -n 's/.*write+sync \([0-9.]*\) MiB\/s, read \([0-9.]*\) MiB\/s.*/\1 \2/p' "$scratch/said.$where" >>"$scratch/records.$where"
    done
done
compare records MiB/s rate write+sync read
expected=$("$dir/mpiio_records" --expected $ranks | sha256sum | cut -d' ' -f1)
show weft run -- sha256sum /weft/demo/records.dat
got=$("${run[@]}" -- sha256sum /weft/demo/records.dat | cut -d' ' -f1)
echo "on Weft   $got"
echo "expected  $expected"
[ "$got" = "$expected" ] || fail "/weft/demo/records.dat: the checksums differ"

title "A parallel HDF5 program: $ranks ranks, one shared file"
show weft run -- "${mpiexec[@]}" ./hdf5_field /weft/demo/field.h5
show "${mpiexec[@]}" ./hdf5_field reference.h5 "  # the control, alternately"
for ((round = 1; round <= rounds; round++)); do
    "${run[@]}" -- "${mpiexec[@]}" "$dir/hdf5_field" /weft/demo/field.h5 | tee "$scratch/said.weft"
    "${mpiexec[@]}" "$dir/hdf5_field" "$dir/reference.h5" >"$scratch/said.local"
    for where in weft local; do
        sed -n 's/.*write+flush \([0-9.]*\) s, read \([0-9.]*\) s.*/\1 \2/p' "$scratch/said.$where" >>"$scratch/field.$where"
    done
done
compare field s time write+flush read
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

ssd_beside_disk "$disk_today" "$ssd_today"
echo "A current disk collects small writes in its write cache, so an SSD has less to gain than beside the disks of 2010 below."
ssd_beside_disk "$disk_paper" "$ssd_paper"
echo "Measured on 4 idle processors: 2.43 for ibridge-hdd, with write-back. This machine has $(nproc), with load $(cut -d' ' -f1 /proc/loadavg);"
echo "busy processors make both gains smaller."
echo "'weft plan TRACE --ssd' predicts the gain of a program; 'scripts/ibridge.sh profiles' measures further disks."

title "A compressed directory: checkpoints of smooth values with noise, on an EMULATED disk"
start_targets "$scratch/compression" "1 MiB" "class = \"hdd\"
emulate = \"$disk_today\""
export WEFT_CLUSTER=$scratch/compression/cluster.toml
show weft mkdir /weft/plain /weft/compressed
"$weft" mkdir /weft/plain /weft/compressed
show weft setstripe --compress "$codec" /weft/compressed
"$weft" setstripe --compress "$codec" /weft/compressed
echo "One server with an emulated disk ($disk_today). Plain, compressed and local runs alternate. Each rank writes its file and syncs"
echo "it, then reads it. The emulated page cache keeps no synced bytes, so all reads reach the emulated disk."
for ((round = 1; round <= rounds; round++)); do
    for place in plain compressed local; do
        command=("${mpiexec[@]}" "$dir/checkpoint")
        case $place in
        local) "${command[@]}" "$scratch/local" "$checkpoint_mib" >"$scratch/said" ;;
        *)
            [ $round -gt 1 ] || show weft run -- "${mpiexec[@]}" ./checkpoint /weft/$place "$checkpoint_mib"
            "$weft" run -- "${command[@]}" /weft/$place "$checkpoint_mib" >"$scratch/said"
            ;;
        esac
        cat "$scratch/said"
        grep -q "every byte is right" "$scratch/said" || fail "checkpoint, $place: a byte differs"
        sed -n "s/.*write+sync \([0-9.]*\) s, read \([0-9.]*\) s.*/\1 \2/p" "$scratch/said" >>"$scratch/checkpoint.$place"
    done
done
show weft du -sh --both /weft/plain /weft/compressed "  # space, then length"
"$weft" du -sh --both /weft/plain /weft/compressed
"$weft" du -s /weft/plain /weft/compressed >"$scratch/space"
awk 'NR == 1 { kib = $1 } NR == 2 {
        printf "space       plain %.1f MiB, compressed %.1f MiB, plain/compressed %.2f\n", kib / 1024, $1 / 1024, kib / $1
        exit $1 >= kib
    }' "$scratch/space" || fail "the compressed directory takes no less space than the plain one"
for field in 1:write+sync 2:read; do
    for place in plain compressed local; do
        column "${field%%:*}" "$scratch/checkpoint.$place" >"$scratch/times.$place"
    done
    printf '%-11s plain %s s, compressed %s s, plain/compressed %s (emulated disk); local directory %s s\n' "${field#*:}" \
        "$(spread <"$scratch/times.plain")" "$(spread <"$scratch/times.compressed")" \
        "$(gain "$scratch/times.plain" "$scratch/times.compressed")" "$(spread <"$scratch/times.local")"
done

stop_clusters
unset WEFT_CLUSTER
title "I/O delegates: collective calls of one program on a plain directory, without Weft servers"
directory=$scratch/delegates
mkdir "$directory"
pattern=(-c -t 47008 -s 60 -r -v)
echo "$ranks ranks write and read interleaved pieces of 47,008 bytes with MPI_File_write_all and MPI_File_read_all. Runs without"
echo "delegates, which are the control, and with $delegates alternate. Every byte is checked."
show "${mpiexec[@]}" ./ior_like plain/f "${pattern[@]}"
show weft run --delegates "$delegates" --over plain -- "${mpiexec[@]}" ./ior_like plain/f "${pattern[@]}"
# total: prints the sum of the times that the program reports.
total() { awk '{ for (at = 1; at < NF; at++) if ($(at + 1) == "s") sum += $at } END { printf "%.3f\n", sum }'; }
for ((round = 1; round <= rounds; round++)); do
    "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}" | tee "$scratch/said"
    total <"$scratch/said" >>"$scratch/without"
    "$weft" run --delegates "$delegates" --over "$directory" -- "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}" |
        tee "$scratch/said"
    total <"$scratch/said" >>"$scratch/with"
done
printf 'local directory: without delegates %s s, with %s %s s, without/with %s\n' "$(spread <"$scratch/without")" "$delegates" \
    "$(spread <"$scratch/with")" "$(gain "$scratch/without" "$scratch/with")"

title "Trace, plan, apply, run again: BTIO on six disks and two SSDs, all EMULATED"
echo "Before the plan, stripes are $stripe over all eight targets. The SSDs can hold only a part of the files. Runs before and after alternate."
echo "The gain needs 4 processors for four ranks and eight servers: 1.39 was measured there, and 0.94 to 1.07 on 2. This machine has $(nproc)."
HDD=$plan_hdd SSD=$plan_ssd CAPACITY=$plan_capacity STRIPE=$stripe STEPS=$plan_steps KEEP=$dir/plan scripts/plan.sh $rounds btio
echo "The heat map of the traced run is $dir/plan/btio.svg"

title "Replicas: trace, plan, replicate, run again faster, compare byte for byte, on four EMULATED disks"
echo "$ranks ranks read pieces of one file in a random order. The replica has the pieces of each rank in its order. Two equal files,"
echo "one with a replica, are read alternately. The scene fails if a byte differs."
HDD=$replica_hdd STRIPE=$stripe SIZE=$replica_size PIECES=$replica_pieces KEEP=$dir/replicas PLACES=weft scripts/replicas.sh $rounds strided

title "Done"
finish
scratch=
# The last line must work as it is pasted: in any directory, whatever the environment says of another cluster.
command="$(printf '%q' "$weft") --cluster $(printf '%q' "$state/cluster.toml") run -- ls -l /weft/demo"
echo "The servers are stopped, and the files stay in $state. This command starts the servers again, for ten minutes after its last use,"
echo "and shows the files. It has just been tried:"
(cd / && WEFT_CLUSTER=/another/cluster.toml WEFT_STATE=/another/state sh -c "$command")
echo "Paste it:"
echo
echo "$command"
