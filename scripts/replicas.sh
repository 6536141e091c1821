#!/usr/bin/env bash
# Comparison of `make replicas`: programs with and without a replica, in real time. A strided reader and BTIO, which
# writes and reads row by row, run on four Weft servers with EMULATED disks, then over GlusterFS without emulation. Each
# program has two files with equal bytes, one of them with a replica. Runs on both alternate.
#
# usage: scripts/replicas.sh [ROUNDS [PROGRAM...]]     ROUNDS with and without the replica (default 3);
#                                                     programs: strided, btio, none
#
# The program `none` measures what replicas cost files that have none. Two processes alternate every few milliseconds, each
# with its own cluster and its own file without a replica. `beside` is the median ratio of their times if the second one's
# file lies beside a file that has a replica, `control` if neither does. Nine pairs of processes each. Neither disks nor file
# systems are emulated.
#
# The control of each round is the same program on a plain local directory, without Weft and without emulation.
#
# Every program checks all bytes that it reads. Afterwards both files are compared, with the replica and after its
# removal, and the script fails if a byte differs. It does not fail if a replica gains nothing. On Weft, `weft replicate
# sync` copies written bytes after each run, and its time is printed separately. Over GlusterFS, the last process that
# closes the file copies them, and the program's time contains the copy.
#
# The part over GlusterFS needs root, for the mount and for dropping page caches, and is left out otherwise.
#
# Environment: PLACES is "weft distributed" or one of them. HDD is the emulated disk, MODULE the I/O module of the
# targets, STRIPE the stripe size. SIZE is the size of the reader's requests and PIECES their number per process. STEPS
# is the number of BTIO's steps (10 MiB each). POLICIES are policies of `weft plan --replicas`; the first one that makes a
# replica counts, so that a program that the planner would leave as it is runs with a replica, too. KEEP is a directory
# for traces and plans.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
[ $# -gt 0 ] || set -- strided btio none
for program in "$@"; do
    case $program in
    strided | btio | none) ;;
    *)
        echo "programs: strided, btio, none; there is no $program" >&2
        exit 2
        ;;
    esac
done
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "$PWD/target/replicas.XXXXXX")
keep=${KEEP:-$dir}
mkdir -p "$keep"
# The list of replicas on mounted file systems lies in the user's state.
export XDG_STATE_HOME=$dir/state
unset WEFT_CLUSTER WEFT_STATE
. scripts/clusters.sh
. scripts/spread.sh
gluster=
finish() {
    stop_clusters
    for which in one other none; do
        [ ! -e "$dir/$which" ] || "$weft" stop --cluster "$dir/$which/cluster.toml" >"$dir/noise" 2>&1 || true
    done
    [ -z "$gluster" ] || scripts/distributed.sh stop "$gluster"
    rm -rf --one-file-system "$dir"
}
trap finish EXIT

hdd=${HDD:-hdd-7200} module=${MODULE:-buffered} stripe=${STRIPE:-64 KiB}
size=${SIZE:-16384} pieces=${PIECES:-2000} steps=${STEPS:-2}
mpiexec=(mpiexec.mpich -n 4)
for program in strided btio; do
    mpicc.mpich -O2 -o "$dir/$program" "examples/demo/$program.c"
done

show() { printf '$ %s\n' "$*"; }
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
now() { date +%s.%N; }
since() { awk -v began="$1" -v ended="$(now)" 'BEGIN { printf "%.2f\n", ended - began }'; }

# Empties the page caches of this host, which would hide its disk. Emulated disks have caches of their own.
empty_caches() {
    [ "$place" = distributed ] || return 0
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# run [OPTION...] -- COMMAND...: weft run on the place.
run() { "$weft" run "${where[@]}" "$@"; }

# command_of PROGRAM FILE: sets `words` to the command of a measured run.
command_of() {
    case $1 in
    strided) words=("$dir/strided" "$2" read "$size" "$pieces" random) ;;
    btio) words=("$dir/btio" "$2" "$steps" 64 simple) ;;
    esac
}

# once PROGRAM FILE: runs the program and prints the seconds that it reports for writing, for reading, and for both.
once() {
    local words
    command_of "$1" "$2"
    empty_caches
    run -- "${mpiexec[@]}" "${words[@]}" >"$dir/said"
    reported
}

# local_once PROGRAM: the same program on a file of a local directory, without Weft and without emulation.
local_once() {
    local words
    command_of "$1" "$dir/local-file"
    "${mpiexec[@]}" "${words[@]}" >"$dir/said"
    reported
}

# reported: prints the seconds that the program has said, for writing, for reading, and for both.
reported() {
    grep -Eq "every (value|byte) is right" "$dir/said"
    sed -n 's/.*: write+[a-z]* \([0-9.]*\) s, read \([0-9.]*\) s.*/\1 \2/p; s/.*: read \([0-9.]*\) s.*/0 \1/p' "$dir/said" |
        awk '{ printf "%.3f %.3f %.3f\n", $1, $2, $1 + $2 }'
}

# sum FILE: prints the checksum of a file as programs see it.
sum() { run -- sha256sum "$1" | cut -d' ' -f1; }

# compare PROGRAM DIRECTORY: traces, plans, makes the replica, and runs with and without it alternately.
compare() {
    local program=$1 under=$2 name=$place-$1 without=$2/without-$1 with=$2/with-$1
    local words file policy made=no round began copy sync=0 expected got
    case $program in
    strided)
        for file in "$without" "$with"; do
            run -- "${mpiexec[@]}" "$dir/strided" "$file" fill "$size" "$pieces" >"$dir/said"
        done
        "${mpiexec[@]}" "$dir/strided" "$dir/local-file" fill "$size" "$pieces" >"$dir/said"
        ;;
    btio) once btio "$without" >"$dir/first" ;;
    esac
    command_of "$program" "$with"
    show weft run "${where[@]}" --trace "$name.wtrace" -- "${mpiexec[@]}" "./$program" "${words[@]:1}"
    empty_caches
    run --trace "$keep/$name.wtrace" --trace-paths "$under" -- "${mpiexec[@]}" "${words[@]}" 2>"$dir/noise" ||
        { cat "$dir/noise" >&2; return 1; }
    for policy in ${POLICIES:-best ceda cida}; do
        show weft plan "$name.wtrace --replicas --policy $policy --output $name.toml"
        "$weft" plan "$keep/$name.wtrace" --replicas --policy "$policy" --output "$keep/$name.toml" | tee "$dir/said"
        grep -q "^0 replicas" "$dir/said" || { made=yes; break; }
    done
    if [ $made = no ]; then
        echo "$name: no policy makes a replica"
        return 0
    fi
    show weft replicate apply "$name.toml"
    empty_caches
    began=$(now)
    "$weft" replicate apply "$keep/$name.toml"
    copy=$(since "$began")

    : >"$dir/times-without"
    : >"$dir/times-with"
    : >"$dir/times-sync"
    : >"$dir/times-local"
    for ((round = 1; round <= rounds; round++)); do
        once "$program" "$without" >>"$dir/times-without"
        once "$program" "$with" >>"$dir/times-with"
        local_once "$program" >>"$dir/times-local"
        if [ "$program" = btio ] && [ "$place" = weft ]; then
            began=$(now)
            "$weft" replicate sync "$with" >"$dir/said"
            since "$began" >>"$dir/times-sync"
        fi
        printf '%s, round %s of %s: write, read, both: without %s s, with the replica %s s, local directory %s s\n' "$name" "$round" \
            "$rounds" "$(tail -1 "$dir/times-without")" "$(tail -1 "$dir/times-with")" "$(tail -1 "$dir/times-local")"
    done
    [ ! -s "$dir/times-sync" ] || sync=$(median <"$dir/times-sync")
    report "$name" "$copy" "$sync"

    show weft replicate verify
    "$weft" replicate verify
    expected=$(sum "$without")
    got=$(sum "$with")
    [ "$got" = "$expected" ] || { echo "$with: its checksum differs from that of $without" >&2; return 1; }
    "$weft" replicate drop "$with" >"$dir/noise"
    got=$(sum "$with")
    [ "$got" = "$expected" ] || { echo "$with: its checksum differs after the removal of the replica" >&2; return 1; }
    echo "sha256sum $expected: equal without the replica, with it, and after its removal"
    run -- rm "$without" "$with"
}

# report NAME COPY SYNC: prints medians, ranges, ratios, and after how many runs the copy has paid for itself.
report() {
    local phase column which
    for phase in 1:write+sync 2:read 3:both; do
        column=${phase%%:*}
        for which in without with local; do
            column "$column" "$dir/times-$which" >"$dir/column-$which"
        done
        # The reader writes nothing.
        awk '$1 > 0 { found = 1 } END { exit !found }' "$dir/column-without" || continue
        printf '%s, %-10s  without %s s, with %s s, without/with %s (%s); local directory %s s\n' "$1" "${phase#*:}" \
            "$(spread <"$dir/column-without")" "$(spread <"$dir/column-with")" "$(gain "$dir/column-without" "$dir/column-with")" \
            "$devices" "$(spread <"$dir/column-local")"
    done
    awk -v name="$1" -v copy="$2" -v sync="$3" -v without="$(cut -d' ' -f3 "$dir/times-without" | median)" \
        -v with="$(cut -d' ' -f3 "$dir/times-with" | median)" '
        function pays(gain,    runs) {
            runs = gain > 0 ? int(copy / gain) + 1 : 0
            return !runs ? "never" : runs == 1 ? "1 run" : runs " runs"
        }
        BEGIN {
            if (sync > 0)
                printf "%s, median, synchronization of written bytes after each run: %.2f s\n", name, sync
            printf "%s, copy to the replica %.2f s, has paid for itself after: %s", name, copy, pays(without - with)
            if (sync > 0)
                printf "; with a synchronization after each run: %s", pays(without - with - sync)
            printf "\n"
        }'
}

# replicate UNDER [OPTION...]: makes a replica of a strided program's file, whatever it gains.
replicate() {
    local file=$1/replicated
    shift
    "$weft" run "$@" -- "${mpiexec[@]}" "$dir/strided" "$file" fill 4096 16 >"$dir/said"
    "$weft" run "$@" --trace "$dir/none.wtrace" --trace-paths "${file%/*}" -- "${mpiexec[@]}" "$dir/strided" "$file" read 4096 16 \
        >"$dir/said" 2>&1
    "$weft" plan "$dir/none.wtrace" --replicas --policy cida --output "$dir/none.toml" >"$dir/said"
    grep -q "^1 replica" "$dir/said" || { cat "$dir/said" >&2; return 1; }
    "$weft" replicate apply "$dir/none.toml" >"$dir/said"
}

# cost_without: what replicas of other files cost a file that has none.
cost_without() {
    local which where call count round first second third
    local without="$weft run --state $dir/one --" with="$weft run --state $dir/other --" with_none="$weft run --state $dir/none --"
    cc -O2 -w -o "$dir/load" scripts/tracing.c
    mkdir "$dir/plain"
    for which in one other none; do
        "$weft" run --state "$dir/$which" -- true
    done
    WEFT_CLUSTER=$dir/other/cluster.toml replicate /weft
    XDG_STATE_HOME=$dir/listed replicate "$dir/plain" --no-cluster
    echo "# files without a replica; $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg); $(stat -f -c %T "$dir")"
    printf '%-16s %8s %8s %11s\n' call beside control without_us
    for where in /weft "$dir/plain"; do
        for call in pread pwrite open; do
            count=1000
            [ "$call-$where" != open-/weft ] || count=100
            first="$without '$dir/load' work '$where/a' $call 4096 $count"
            second="XDG_STATE_HOME='$dir/listed' $with '$dir/load' work '$where/b' $call 4096 $count"
            third="$with_none '$dir/load' work '$where/b' $call 4096 $count"
            : >"$dir/beside"
            : >"$dir/control"
            for ((round = 0; round < 9; round++)); do
                "$dir/load" turns 60 $count "$first" "$second" >>"$dir/beside"
                "$dir/load" turns 60 $count "$first" "$third" >>"$dir/control"
            done
            printf '%-16s %8s %8s %11s\n' "$(basename "$where")-$call-4k" "$(cut -d' ' -f1 "$dir/beside" | median)" \
                "$(cut -d' ' -f1 "$dir/control" | median)" "$(cut -d' ' -f3 "$dir/beside" "$dir/control" | median)"
        done
    done
    for which in one other none; do
        "$weft" stop --cluster "$dir/$which/cluster.toml" >"$dir/said"
    done
}

programs=()
for program in "$@"; do
    case $program in
    none) cost_without ;;
    *) programs+=("$program") ;;
    esac
done
[ ${#programs[@]} -gt 0 ] || exit 0

for place in ${PLACES:-weft distributed}; do
    echo
    case $place in
    weft)
        export devices="emulated disks"
        disk="class = \"hdd\"
module = \"$module\"
emulate = \"$hdd\""
        start_targets "$dir/cluster" "$stripe" "$disk" "$disk" "$disk" "$disk"
        export WEFT_CLUSTER=$dir/cluster/cluster.toml
        where=()
        under=/weft
        echo "# Weft on four disks ($hdd), all EMULATED; module $module, stripe size $stripe"
        ;;
    distributed)
        if [ "$(id -u)" -ne 0 ]; then
            echo "# The part over GlusterFS is left out: its mount and dropping page caches need root."
            continue
        fi
        if ! scripts/deps.sh distributed; then
            echo "# The part over GlusterFS is left out: its packages are missing and cannot be installed."
            continue
        fi
        export devices="GlusterFS, not emulated"
        unset WEFT_CLUSTER
        gluster=$dir/gluster
        under=$(scripts/distributed.sh start "$gluster")
        where=(--no-cluster)
        echo "# GlusterFS with four bricks on one disk of this host, not emulated. The page caches are dropped before each run."
        ;;
    *)
        echo "places: weft, distributed; there is no $place" >&2
        exit 2
        ;;
    esac
    echo "# $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg) at the start; seconds of the slowest rank, from open to close"
    for program in "${programs[@]}"; do
        echo
        compare "$program" "$under"
    done
    stop_clusters
done
