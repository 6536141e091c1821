#!/usr/bin/env bash
# Demonstration of `make demo`: scenes that each show one use of Weft with ordinary MPI programs, at most five minutes
# after the build. A scene prints at most 25 lines, and its last line says what the reader saw, with the figures of this
# run. A scene that this machine cannot show is left out, and one line says why.
#
# Every gain is a ratio to a control of the same round: a plain local directory, or the same cluster without the feature.
# Runs alternate. Emulated devices are named in the heading of their scene. Output of the programs goes to a log.
#
# The demonstration fails if a program fails, if a byte, a checksum or an HDF5 object differs, or if a compressed directory
# takes as much space as a plain one. No ratio of times makes it fail.
#
# usage: scripts/demo.sh [DIR]   DIR holds programs, the log and the cluster (default target/demo)
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mkdir -p "${1:-target/demo}" && cd "${1:-target/demo}" && pwd)
weft=$(cd "${CARGO_TARGET_DIR:-target}" 2>/dev/null && pwd || echo "$PWD/${CARGO_TARGET_DIR:-target}")/release/weft
state=$dir/state log=$dir/log
rounds=3 rounds_directory=5 scene_lines_max=25
idle="2 min" stripe="64 KiB"
# At most one rank for each processor: ranks of MPI spin while they wait for each other, and on shared processors a
# comparison would measure that. Programs want one, two or four ranks.
processors=$(nproc)
if [ "$processors" -ge 4 ]; then ranks=4; elif [ "$processors" -ge 2 ]; then ranks=2; else ranks=1; fi
mpiexec=(mpiexec.mpich -n $ranks)
record=47008 records=$((8000 / ranks)) small_files=4000 small_file=3901
checkpoint_mib=48 codec=zstd
ssd_policy=detour ssd_size="64 MiB"
disk_today=hdd-7200 ssd_today=sata-ssd disk_2010=ibridge-hdd ssd_2010=ibridge-ssd
# Requests of all ranks together, so that a scene takes as long with more ranks.
plan_request=65536 plan_requests=$((3072 / ranks)) plan_capacity="256 MiB"
replica_request=16384 replica_requests=$((4000 / ranks))
delegates=2

if [ -t 1 ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); else bold= plain=; fi
export WEFT_STATE=$state
# The demonstration has its own clusters, even if another one is configured.
unset WEFT_CLUSTER
. scripts/clusters.sh
. scripts/spread.sh

scratch= at="the build" lines=0
: >"$log"
finish() {
    local code=$?
    [ $code -eq 0 ] || printf 'demo: %s failed (exit code %s). The end of %s:\n%s\n' "$at" "$code" "$log" "$(tail -5 "$log")" >&2
    "$weft" stop --state "$state" >>"$log" 2>&1 || true
    stop_clusters
    [ -z "$scratch" ] || rm -rf --one-file-system "$scratch"
}
trap finish EXIT
# A signal ends the demonstration like a failure.
trap 'exit 130' INT TERM

# say TEXT: prints a line of the scene, of which there are at most $scene_lines_max.
say() {
    lines=$((lines + 1))
    [ $lines -le $scene_lines_max ] || fail "more than $scene_lines_max lines"
    printf '%s\n' "$1"
}
fail() {
    echo "$*" >>"$log"
    exit 1
}
# scene TITLE: begins a scene.
scenes=0
scene() {
    scenes=$((scenes + 1)) lines=0 at="scene $scenes"
    echo
    say "$bold== $scenes. $1$plain"
    echo "== $scenes. $1" >>"$log"
}
# saw SENTENCE: ends a scene.
saw() { say "${bold}You saw:$plain $1"; }
# leave_out SUBJECT REASON: says why a scene is missing.
leave_out() { printf '\n%s== Left out: %s%s, because %s\n' "$bold" "$1" "$plain" "$2"; }
show() { say "\$ $*"; }
# quietly COMMAND...: runs a command with its output in the log.
quietly() { "$@" >>"$log" 2>&1; }
# tell PATTERN COMMAND...: runs a command with its output in the log, and says the lines that match.
tell() {
    local pattern=$1 line
    shift
    "$@" >"$scratch/told" 2>>"$log"
    cat "$scratch/told" >>"$log"
    while IFS= read -r line; do say "$line"; done < <(grep -E -- "$pattern" "$scratch/told")
}
# timed FILE COMMAND...: runs a command with its output in the log, and appends its seconds to a file.
timed() {
    local file=$1 began
    shift
    began=$(date +%s%N)
    "$@" >>"$log" 2>&1
    awk -v ns=$(($(date +%s%N) - began)) 'BEGIN { printf "%.4f\n", ns / 1e9 }' >>"$file"
}
# reported FILE COMMAND...: runs a program that checks its data, and appends the seconds that it reports, for writing and
# for reading, to FILE.write and FILE.read.
reported() {
    local file=$1
    shift
    "$@" >"$scratch/said" 2>>"$log" || { cat "$scratch/said" >>"$log"; fail "$* failed"; }
    cat "$scratch/said" >>"$log"
    grep -Eq "every (byte|value) is right" "$scratch/said" || fail "$*: a byte differs"
    sed -nE 's/.*[: ]write(\+[a-z]*)? ([0-9.]+) s.*/\2/p' "$scratch/said" >>"$file.write"
    sed -nE 's/.*[: ]read ([0-9.]+) s.*/\1/p' "$scratch/said" >>"$file.read"
}
# middle FILE: prints the median.
middle() { sort -n "$1" | awk '{ all[NR] = $1 } END { printf "%.3g", all[int((NR + 1) / 2)] }'; }
# row NAME FILE OTHER: says both medians in seconds and the ratios OTHER/FILE, how many times as fast FILE is.
row() { say "$(printf '%-34s %8s s %10s s   %s' "$1" "$(middle "$2")" "$(middle "$3")" "$(gain "$3" "$2")")"; }
# ratio FILE OTHER: prints the median of the ratios OTHER/FILE.
ratio() { gain "$2" "$1" | cut -d' ' -f1; }
# sign FILE OTHER: prints whether FILE is faster than OTHER in every round, by more than a twentieth.
sign() {
    gain "$2" "$1" | tr -d '()' | awk '{ print ($2 > 1.05 ? "faster" : $4 < 0.95 ? "slower" : "even") }'
}
# effect FILE OTHER: prints how many times as fast FILE is, and says so if that is not a gain in every round.
effect() {
    case $(sign "$1" "$2") in
    faster) echo "$(ratio "$1" "$2") times as fast" ;;
    slower) echo "slower ($(ratio "$1" "$2") times as fast)" ;;
    *) echo "not clearly faster ($(ratio "$1" "$2") times as fast)" ;;
    esac
}
# sum COMMAND...: prints the checksum of a command's output.
sum() { "$@" 2>>"$log" | sha256sum | cut -d' ' -f1; }
# smaller SPACE OTHER: prints which part of OTHER a smaller space takes, and fails if it is not smaller.
smaller() {
    [ "$1" -lt "$2" ] || fail "a compressed directory takes $1 KiB, a plain one $2"
    awk -v part="$1" -v whole="$2" 'BEGIN { printf "%.2f", part / whole }'
}
# equal NAME SUM OTHER: fails if two checksums differ.
equal() { [ "$2" = "$3" ] || fail "$1: the checksums differ: $2 and $3"; }

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

echo "Building Weft (8 to 11 minutes on two processors in a fresh clone), then at most five minutes of scenes; log: $log"
build
began=$(date +%s)
scratch=$(mktemp -d "$dir/scratch.XXXXXX")
directory=$scratch/directory
mkdir "$directory"
for program in mpiio_records unaligned checkpoint strided; do
    mpicc.mpich -O2 -o "$dir/$program" examples/demo/$program.c -lm
done
mpicc.mpich -O2 -o "$dir/ior_like" examples/delegates/ior_like.c
(cd "$dir" && h5pcc.mpich -O2 -o hdf5_field "$OLDPWD/examples/demo/hdf5_field.c")
for program in mpiio_records unaligned checkpoint strided ior_like hdf5_field; do
    # One file at a time, because nm prints the paths of several files, and a path may contain "weft".
    ! nm -D "$dir/$program" | grep -qi weft || fail "$program must not refer to Weft"
done
echo "Six MPI programs, none linked to Weft; ranks: $ranks, processors: $processors (load $(cut -d' ' -f1 /proc/loadavg) at the start)."
echo "Both sides of a comparison alternate in $rounds rounds, $rounds_directory in scene 1. Times are medians; ratios are medians with lowest and highest."


run=("$weft" run --state "$state" --idle-exit "$idle" --)

one_machine() {
    local round places place where in tree=$scratch/tree stored whole space name faster=
    scene "One machine, one disk: what you gain over a directory, and what not"
    quietly "$weft" run --state "$state" --fresh --yes --idle-exit "$idle" -- mkdir -p /weft/small /weft/compressed
    export WEFT_CLUSTER=$state/cluster.toml
    quietly "$weft" setstripe --compress $codec /weft/compressed
    mkdir "$tree" "$directory/compressed"
    seq 2000000 | head -c $((small_files * small_file)) | split -b $small_file -a 4 -d - "$tree/f" || true
    tar -cf "$scratch/small.tar" -C "$tree" .
    show weft run -- "${mpiexec[@]}" ./ior_like /weft/shared -t $record -s $records -e -r -v
    show "${mpiexec[@]}" ./ior_like directory/shared -t $record -s $records -e -r -v "  # the control; other rows likewise"
    for ((round = 1; round <= rounds_directory; round++)); do
        if [ $((round % 2)) -eq 1 ]; then places="weft directory"; else places="directory weft"; fi
        for place in $places; do
            if [ $place = weft ]; then where=/weft in=("${run[@]}"); else where=$directory in=(env); fi
            quietly "${in[@]}" rm -rf "$where/shared" "$where/small"
            quietly "${in[@]}" mkdir "$where/small"
            reported "$scratch/shared.$place" "${in[@]}" "${mpiexec[@]}" "$dir/ior_like" "$where/shared" -t $record -s $records -e -r -v
            timed "$scratch/extract.$place" "${in[@]}" tar -xf "$scratch/small.tar" -C "$where/small"
            timed "$scratch/cat.$place" "${in[@]}" sh -c 'cat "$1"/* >"$2"' sh "$where/small" "$scratch/read"
            equal "$where/small" "$(sum cat "$scratch/read")" "$(sum cat "$tree/"*)"
            reported "$scratch/checkpoint.$place" "${in[@]}" "${mpiexec[@]}" "$dir/checkpoint" "$where/compressed" $checkpoint_mib
        done
    done
    say "$(printf '%-34s %10s %12s   %s' "" Weft directory "directory/Weft: how many times as fast Weft is")"
    row "shared file, write and sync" "$scratch/shared.weft.write" "$scratch/shared.directory.write"
    row "shared file, read" "$scratch/shared.weft.read" "$scratch/shared.directory.read"
    row "$small_files small files, tar -x" "$scratch/extract.weft" "$scratch/extract.directory"
    row "$small_files small files, cat" "$scratch/cat.weft" "$scratch/cat.directory"
    row "checkpoint, $codec, write and sync" "$scratch/checkpoint.weft.write" "$scratch/checkpoint.directory.write"
    row "checkpoint, $codec, read" "$scratch/checkpoint.weft.read" "$scratch/checkpoint.directory.read"
    stored=$("$weft" du -s /weft/compressed | awk '{ print $1 }')
    whole=$(du -s "$directory/compressed" | awk '{ print $1 }')
    space=$(smaller "$stored" "$whole")
    say "$(printf '%-34s %6d MiB %8d MiB   %s of the space' "checkpoint, $codec, space" $((stored / 1024)) $((whole / 1024)) "$space")"
    say "Every byte was compared in every run. Files are in the page cache when they are read."
    for name in write:shared.%.write read:shared.%.read tar:extract.% cat:cat.%; do
        place=$scratch/${name#*:}
        [ "$(sign "${place/\%/weft}" "${place/\%/directory}")" != faster ] || faster="$faster${faster:+, }${name%%:*}"
    done
    if [ -n "$faster" ]; then faster="Weft is faster in each round for $faster, else your directory is"; else faster="your directory is"; fi
    saw "$faster as fast or faster (Weft writes a shared file $(ratio "$scratch/shared.weft.write" "$scratch/shared.directory.write"), \
reads it $(ratio "$scratch/shared.weft.read" "$scratch/shared.directory.read"), unpacks small files \
$(ratio "$scratch/extract.weft" "$scratch/extract.directory") and reads them $(ratio "$scratch/cat.weft" "$scratch/cat.directory") times as fast). \
Use Weft for space ($space with $codec), several disks or hosts."
    rm -rf "$directory/shared" "$directory/small" "$directory/compressed" "$scratch/read"
}

unmodified() {
    local file
    scene "Unmodified MPI-IO and parallel HDF5 programs: the same bytes, spread over four servers"
    quietly "${run[@]}" mkdir -p /weft/demo
    show weft run -- "${mpiexec[@]}" ./mpiio_records /weft/demo/records.dat
    quietly "${run[@]}" "${mpiexec[@]}" "$dir/mpiio_records" /weft/demo/records.dat
    equal records.dat "$(sum "${run[@]}" cat /weft/demo/records.dat)" "$(sum "$dir/mpiio_records" --expected $ranks)"
    say "checksum: as expected"
    show weft run -- "${mpiexec[@]}" ./hdf5_field /weft/demo/field.h5
    quietly "${run[@]}" "${mpiexec[@]}" "$dir/hdf5_field" /weft/demo/field.h5
    quietly "${mpiexec[@]}" "$dir/hdf5_field" "$directory/field.h5"
    show weft run -- h5diff directory/field.h5 /weft/demo/field.h5
    quietly "${run[@]}" h5diff "$directory/field.h5" /weft/demo/field.h5
    say "no differences"
    show weft getstripe -v /weft/demo/field.h5
    tell "TARGET|ssd|hdd|bytes " "$weft" getstripe -v /weft/demo/field.h5
    targets=$("$weft" getstripe -v /weft/demo/field.h5 | grep -cE "^ +[0-9]+ +(hdd|ssd) ")
    saw "two programs that know nothing of Weft wrote and read files over $targets targets; sha256sum and h5diff found no difference."
}

# ssd_cluster DIR DISK [SSD]: starts four servers with emulated disks, and with emulated SSDs beside them.
ssd_cluster() {
    quietly start_cluster "$1" "$stripe" "module = \"direct\"
emulate = \"$2\"" ${3:+"size = \"$ssd_size\"
policy = \"$ssd_policy\"
emulate = \"$3\""}
}

ssd_beside_disk() {
    local disk ssd round place expected
    scene "An SSD beside each disk, for unaligned requests: four EMULATED disks and SSDs, in real time"
    say "Policy \"$ssd_policy\" under [server.target.ibridge]; direct I/O; records of $record bytes; stripes of $stripe."
    show weft run -- "${mpiexec[@]}" ./unaligned /weft/f "&& weft flush   # writes and syncs; then the SSDs are written back"
    say "$(printf '%-34s %10s %12s   %s' "" "with SSDs" "without" "without/with: how many times as fast with SSDs")"
    expected=$(sum "$dir/mpiio_records" --expected $ranks)
    for disk in $disk_today $disk_2010; do
        if [ $disk = $disk_today ]; then ssd=$ssd_today; else ssd=$ssd_2010; fi
        ssd_cluster "$scratch/$disk/with" $disk $ssd
        ssd_cluster "$scratch/$disk/without" $disk
        for ((round = 1; round <= rounds; round++)); do
            for place in with without; do
                export WEFT_CLUSTER=$scratch/$disk/$place/cluster.toml
                quietly "$weft" rm -f /weft/f
                timed "$scratch/$disk.program.$place" "$weft" run -- "${mpiexec[@]}" "$dir/unaligned" /weft/f
                timed "$scratch/$disk.flush.$place" "$weft" flush --quiet
                equal "/weft/f on $disk" "$(sum "$weft" run -- cat /weft/f)" "$expected"
            done
        done
        stop_clusters
        for place in with without; do
            paste "$scratch/$disk.program.$place" "$scratch/$disk.flush.$place" | awk '{ print $1 + $2 }' >"$scratch/$disk.all.$place"
        done
        row "$disk, program" "$scratch/$disk.program.with" "$scratch/$disk.program.without"
        row "$disk, and write-back" "$scratch/$disk.all.with" "$scratch/$disk.all.without"
    done
    say "Every run's file had the expected checksum. 'weft plan TRACE --ssd' predicts the gain of your program."
    saw "with write-back, SSDs beside current disks ($disk_today) are $(effect "$scratch/$disk_today.all.with" "$scratch/$disk_today.all.without"), \
beside disks of 2010 ($disk_2010) $(effect "$scratch/$disk_2010.all.with" "$scratch/$disk_2010.all.without")."
}

compressed() {
    local round place space
    scene "A compressed directory: checkpoints on one server with an EMULATED disk ($disk_today), in real time"
    quietly start_targets "$scratch/compression" "1 MiB" "class = \"hdd\"
emulate = \"$disk_today\""
    export WEFT_CLUSTER=$scratch/compression/cluster.toml
    show weft mkdir /weft/plain /weft/compressed
    quietly "$weft" mkdir /weft/plain /weft/compressed
    show weft setstripe --compress $codec /weft/compressed
    quietly "$weft" setstripe --compress $codec /weft/compressed
    show weft run -- "${mpiexec[@]}" ./checkpoint /weft/compressed $checkpoint_mib "  # smooth values with noise; alternately in /weft/plain"
    for ((round = 1; round <= rounds; round++)); do
        for place in compressed plain; do
            reported "$scratch/emulated.$place" "$weft" run -- "${mpiexec[@]}" "$dir/checkpoint" /weft/$place $checkpoint_mib
        done
    done
    show weft du -sh --both /weft/plain /weft/compressed "  # space, then length"
    tell . "$weft" du -sh --both /weft/plain /weft/compressed
    space=$(smaller $("$weft" du -s /weft/compressed /weft/plain | awk '{ print $1 }'))
    stop_clusters
    say "$(printf '%-34s %10s %12s   %s' "" compressed plain "plain/compressed: how many times as fast compressed is")"
    row "write and sync" "$scratch/emulated.compressed.write" "$scratch/emulated.plain.write"
    row "read, not from the page cache" "$scratch/emulated.compressed.read" "$scratch/emulated.plain.read"
    say "Every byte was compared in every run."
    saw "the compressed directory takes $space of the space; on this emulated disk writes are \
$(effect "$scratch/emulated.compressed.write" "$scratch/emulated.plain.write"), reads $(effect "$scratch/emulated.compressed.read" "$scratch/emulated.plain.read")."
}

# advised NAME: prints a value of the advice in the plan.
advised() { sed -n "/^\[advice\]/,/^$/s/^$1 = \"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$dir/plan.toml"; }

planned() {
    local round place predicted hdd ssd strided="$plan_request $plan_requests"
    scene "Trace, plan, apply, run again: three EMULATED disks and two EMULATED SSDs, in real time"
    hdd="class = \"hdd\"
emulate = \"$disk_today\""
    ssd="class = \"ssd\"
emulate = \"$ssd_today\"
capacity = \"$plan_capacity\""
    quietly start_targets "$scratch/planned" "$stripe" "$hdd" "$hdd" "$hdd" "$ssd" "$ssd"
    export WEFT_CLUSTER=$scratch/planned/cluster.toml
    quietly "$weft" run -- mkdir /weft/before /weft/after
    quietly "$weft" run -- "${mpiexec[@]}" "$dir/strided" /weft/before/f fill $strided
    show weft run --trace app.wtrace -- "${mpiexec[@]}" ./strided /weft/before/f read $strided random
    quietly "$weft" run --trace "$dir/app.wtrace" -- "${mpiexec[@]}" "$dir/strided" /weft/before/f read $strided random
    quietly "$weft" trace plot "$dir/app.wtrace" --output "$dir/app.svg"
    show weft plan app.wtrace --output plan.toml
    tell "layout:|advice:" "$weft" plan "$dir/app.wtrace" --output "$dir/plan.toml"
    if [ "$(advised action)" != change ]; then
        stop_clusters
        saw "the planner sees no certain gain for this program and keeps the present layout, so there is nothing to apply."
        return
    fi
    show weft apply plan.toml --map /weft/before=/weft/after
    quietly "$weft" apply "$dir/plan.toml" --map /weft/before=/weft/after
    quietly "$weft" run -- "${mpiexec[@]}" "$dir/strided" /weft/after/f fill $strided
    for ((round = 1; round <= rounds; round++)); do
        for place in after before; do
            reported "$scratch/planned.$place" "$weft" run -- "${mpiexec[@]}" "$dir/strided" /weft/$place/f read $strided random
        done
    done
    stop_clusters
    say "$(printf '%-34s %10s %12s   %s' "" after before "before/after: how many times as fast after the plan")"
    row "random reads of $plan_request bytes" "$scratch/planned.after.read" "$scratch/planned.before.read"
    say "Every byte was compared in every run. Heat map of the trace: $dir/app.svg"
    saw "$(judge "the plan" "$(advised present_s)" "$(advised planned_s)" "$scratch/planned.after.read" "$scratch/planned.before.read")"
}

# judge SUBJECT PRESENT PLANNED FILE OTHER: prints a sentence that compares a predicted gain with the measured one.
judge() {
    awk -v subject="$1" -v present="$2" -v planned="$3" -v measured="$(ratio "$4" "$5")" -v sign="$(sign "$4" "$5")" 'BEGIN {
        predicted = present / planned
        figures = sprintf("%.1f times as fast predicted, %s measured", predicted, measured)
        if (sign == "slower") print "the prediction was wrong: " subject " makes the program slower (" figures ")."
        else if (sign != "faster") print "the predicted gain of " subject " did not show in every round (" figures ")."
        else if (predicted / measured > 1.25) print subject " makes the program faster, but less than predicted (" figures ")."
        else if (measured / predicted > 1.25) print subject " makes the program faster, and more than predicted (" figures ")."
        else print subject " makes the program faster, as predicted (" figures ")."
    }'
}

replicated() {
    local round place hdd strided="$replica_request $replica_requests" sums predicted
    scene "A replica in the order in which a program reads: four EMULATED disks ($disk_today), in real time"
    hdd="class = \"hdd\"
emulate = \"$disk_today\""
    quietly start_targets "$scratch/replicated" "$stripe" "$hdd" "$hdd" "$hdd" "$hdd"
    export WEFT_CLUSTER=$scratch/replicated/cluster.toml
    for place in without with; do
        quietly "$weft" run -- "${mpiexec[@]}" "$dir/strided" /weft/$place fill $strided
    done
    show weft run --trace read.wtrace -- "${mpiexec[@]}" ./strided /weft/with read $strided random
    quietly "$weft" run --trace "$dir/read.wtrace" -- "${mpiexec[@]}" "$dir/strided" /weft/with read $strided random
    show weft plan read.wtrace --replicas --output replicas.toml
    tell "times as fast|^[0-9]+ replica" "$weft" plan "$dir/read.wtrace" --replicas --output "$dir/replicas.toml"
    predicted=$(sed -nE 's/^1 replica .* ([0-9.]+) s instead of ([0-9.]+) s by .*/\2 \1/p' "$scratch/told")
    if [ -z "$predicted" ]; then
        stop_clusters
        saw "the planner sees no gain of a replica for this program and plans none."
        return
    fi
    show weft replicate apply replicas.toml
    timed "$scratch/copy" "$weft" replicate apply "$dir/replicas.toml"
    for ((round = 1; round <= rounds; round++)); do
        for place in with without; do
            reported "$scratch/replicated.$place" "$weft" run -- "${mpiexec[@]}" "$dir/strided" /weft/$place read $strided random
        done
    done
    quietly "$weft" replicate verify
    sums=$(for place in with without; do sum "$weft" run -- cat /weft/$place; done | uniq | wc -l)
    [ "$sums" -eq 1 ] || fail "the checksums of two equal files differ, one of which has a replica"
    stop_clusters
    say "$(printf '%-34s %10s %12s   %s' "" "with" without "without/with: how many times as fast with the replica")"
    row "random reads of $replica_request bytes" "$scratch/replicated.with.read" "$scratch/replicated.without.read"
    say "The copy took $(middle "$scratch/copy") s. Every byte was compared in every run; 'weft replicate verify' and checksums agree."
    saw "$(judge "the replica" $predicted "$scratch/replicated.with.read" "$scratch/replicated.without.read")"
}

delegated() {
    local round pattern=(-c -t $record -s 400 -r -v) others=$((processors - delegates)) mpiexec
    mpiexec=(mpiexec.mpich -n $((others < 4 ? others : 4)))
    scene "I/O delegates, processes that do the I/O of all ranks: collective calls on a plain directory, without Weft servers"
    unset WEFT_CLUSTER
    show "${mpiexec[@]}" ./ior_like directory/f "${pattern[@]}"
    show weft run --delegates $delegates --over directory -- "${mpiexec[@]}" ./ior_like directory/f "${pattern[@]}"
    for ((round = 1; round <= rounds; round++)); do
        reported "$scratch/delegated.with" "$weft" run --delegates $delegates --over "$directory" -- "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}"
        reported "$scratch/delegated.without" "${mpiexec[@]}" "$dir/ior_like" "$directory/f" "${pattern[@]}"
    done
    say "$(printf '%-34s %10s %12s   %s' "" delegates without "without/delegates: how many times as fast with delegates")"
    row "write" "$scratch/delegated.with.write" "$scratch/delegated.without.write"
    row "read" "$scratch/delegated.with.read" "$scratch/delegated.without.read"
    say "Every byte was compared in every run."
    saw "over a local disk delegates write $(ratio "$scratch/delegated.with.write" "$scratch/delegated.without.write") and read \
$(ratio "$scratch/delegated.with.read" "$scratch/delegated.without.read") times as fast; docs/guide/delegates.md says where they help."
}

one_machine
unmodified
ssd_beside_disk
compressed
planned
replicated
if [ "$processors" -ge $((2 + delegates)) ]; then
    delegated
else
    leave_out "I/O delegates (processes that do the I/O of all ranks)" "they need a processor for each of at least two ranks and $delegates delegates, and this machine has $processors."
fi

at="the end"
quietly "$weft" stop --state "$state"
rm -rf --one-file-system "$scratch"
scratch=
# The last line must work as it is pasted: in any directory, whatever the environment says of another cluster.
command="$(printf '%q' "$weft") --cluster $(printf '%q' "$state/cluster.toml") run -- ls -l /weft/demo"
(cd / && WEFT_CLUSTER=/another/cluster.toml WEFT_STATE=/another/state quietly sh -c "$command")
echo
echo "All scenes passed, $(($(date +%s) - began)) s after the build. The files of scene 2 stay in $state."
echo "This command starts the servers again and shows the files; it has just been tried:"
echo
echo "$command"
