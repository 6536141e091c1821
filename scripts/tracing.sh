#!/usr/bin/env bash
# What tracing costs: the same programs without the library, with it, and with it tracing, in turns, so that whatever
# else the machine does meets all three. The time is the one that each program tells of its own transfers.
#
# usage: scripts/tracing.sh [ROUNDS] [CASE...]        11 rounds and all cases unless told otherwise
#
# Cases: sync-4k, sync-64k (each write is on the disk before the next), cache-4k, cache-64k, cache-1m (the page cache of a
# plain directory, nothing else), weft-4k, weft-64k, weft-1m (files of Weft, by descriptor), ior-sync, ior-cache, ior-weft
# (IOR, 4 ranks, 64 KiB; IOR and MPIEXEC name the programs).
#
# A row: the median of `traced` over `plain` (without the library) and over `library` (with it, not tracing) of the same
# round, the smallest times of each in seconds, and the operations that a trace has. DIR is where plain files lie.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-11}
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(sync-4k sync-64k cache-4k cache-64k cache-1m weft-4k weft-64k weft-1m)
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
weft=$target/release/weft
mkdir -p target
dir=$(mktemp -d "${DIR:-$PWD/target}/tracing.XXXXXX")
unset WEFT_CLUSTER WEFT_STATE LD_PRELOAD
trap '"$weft" stop --cluster "$dir/state/cluster.toml" >/dev/null 2>&1 || true; rm -rf --one-file-system "$dir"' EXIT
ior=${IOR:-ior} mpiexec=${MPIEXEC:-mpiexec}

# The program of a case; %P is the directory that it works in.
program() {
    case $1 in
    sync-4k) echo "dd if=/dev/zero of=%P/f bs=4k count=1500 oflag=dsync conv=notrunc" ;;
    sync-64k) echo "dd if=/dev/zero of=%P/f bs=64k count=1000 oflag=dsync conv=notrunc" ;;
    cache-4k | weft-4k) echo "dd if=%P/in of=%P/f bs=4k count=50000 conv=notrunc" ;;
    cache-64k | weft-64k) echo "dd if=%P/in of=%P/f bs=64k count=8000 conv=notrunc" ;;
    cache-1m | weft-1m) echo "dd if=%P/in of=%P/f bs=1M count=500 conv=notrunc" ;;
    ior-sync) echo "$mpiexec -n 4 $ior -a POSIX -t 64k -b 16m -Y -w -r -C -o %P/ior" ;;
    ior-cache | ior-weft) echo "$mpiexec -n 4 $ior -a POSIX -t 64k -b 128m -w -r -C -o %P/ior" ;;
    *)
        echo "tracing.sh: $1: no such case; see the head of this file" >&2
        exit 2
        ;;
    esac
}

# Seconds that a program tells: dd, or IOR's total of writing and reading.
seconds() {
    awk '/copied, / { sub(/.*copied, /, ""); print $1; exit }
         /^(write|read) / { sum += $NF == "0" || $NF ~ /^[0-9]+$/ ? $(NF - 1) : $NF } END { if (sum) print sum }' "$1"
}

# once CASE HOW: the seconds of a run.
once() {
    local place=$dir/plain how=$2 command before=()
    case $1 in *weft*) place=/weft ;; esac
    command=$(program "$1")
    command=${command//%P/$place}
    case $1-$how in
    *-plain) ;;
    *weft*-library) before=("$weft" run --state "$dir/state" --) ;;
    *weft*-traced) before=("$weft" run --state "$dir/state" --trace "$dir/a.wtrace" --) ;;
    *-library) before=("$weft" run --state "$dir/state" --) ;;
    *-traced) before=("$weft" run --no-cluster --trace "$dir/a.wtrace" --) ;;
    esac
    # shellcheck disable=SC2086
    "${before[@]}" $command >"$dir/out" 2>&1 || { cat "$dir/out" >&2; exit 1; }
    seconds "$dir/out"
}

mkdir "$dir/plain"
dd if=/dev/zero of="$dir/plain/in" bs=1M count=512 status=none
"$weft" run --state "$dir/state" -- sh -c "case '${cases[*]}' in *weft-*) cp '$dir/plain/in' /weft/in ;; esac"

echo "# $(uname -sr), $(nproc) processors, $rounds rounds in turns; plain files on $(stat -f -c %T "$dir/plain")"
printf '%-10s %12s %14s %9s %9s %9s %9s\n' case traced/plain traced/library plain_s library_s traced_s records
for case in "${cases[@]}"; do
    hows=(plain library traced)
    case $case in *weft*) hows=(library traced) ;; esac
    : >"$dir/times"
    for ((round = 0; round < rounds; round++)); do
        # Another order each time.
        for ((n = 0; n < ${#hows[@]}; n++)); do
            how=${hows[$(((n + round) % ${#hows[@]}))]}
            echo "$round $how $(once "$case" "$how")" >>"$dir/times"
        done
    done
    records=$("$weft" trace show "$dir/a.wtrace" --json | awk -F'"records":' 'NF > 1 { split($2, a, /[,}]/); print a[1]; exit }')
    awk -v case="$case" -v records="$records" '
        { time[$2, $1] = $3; if (!($2 in least) || $3 < least[$2]) least[$2] = $3; if ($1 >= n) n = $1 + 1 }
        function ratio(how,   i, j, swap, list, count) {
            for (i = 0; i < n; i++) if ((how, i) in time) list[++count] = time["traced", i] / time[how, i]
            if (!count) return "-"
            for (i = 1; i < count; i++) for (j = i + 1; j <= count; j++) if (list[j] < list[i]) {
                swap = list[i]; list[i] = list[j]; list[j] = swap }
            return sprintf("%.3f", count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2)
        }
        function shown(how) { return how in least ? sprintf("%.3f", least[how]) : "-" }
        END { printf "%-10s %12s %14s %9s %9s %9s %9s\n", case, ratio("plain"), ratio("library"),
                     shown("plain"), shown("library"), shown("traced"), records }' "$dir/times"
done
