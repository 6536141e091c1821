#!/usr/bin/env bash
# What tracing costs: the same programs without the library, with it, and with it tracing, in turns, so that whatever
# else the machine does meets all three. The time is the one that each program tells of its own transfers.
#
# usage: scripts/tracing.sh [ROUNDS] [CASE...]        31 rounds and all cases but IOR's unless told otherwise
#
# Cases: sync-4k, sync-64k (each write is on the disk before the next), cache-4k, cache-64k, cache-1m (the page cache of a
# plain directory, nothing else), weft-4k, weft-64k, weft-1m (files of Weft, by descriptor), ior-sync, ior-cache, ior-weft
# (IOR, 4 ranks, 64 KiB; IOR and MPIEXEC name the programs).
#
# First of all, `calls`: what one call costs in nanoseconds of processor time, which does not depend on what else the
# machine does: of a file in the page cache, at an offset and at the descriptor's position, compression and writing of
# the trace counted in.
#
# A row of the other cases: the median over the rounds of `traced` over `plain` (without the library) and over `library` (with it, not
# tracing); the same of the smallest times, which other work on the machine disturbs least; these in seconds; and the
# operations that a trace has. DIR is where plain files lie.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-31}
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(calls sync-4k sync-64k cache-4k cache-64k cache-1m weft-4k weft-64k weft-1m)
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
    sync-4k) echo "dd if=/dev/zero of=%P/f bs=4k count=400 oflag=dsync conv=notrunc" ;;
    sync-64k) echo "dd if=/dev/zero of=%P/f bs=64k count=300 oflag=dsync conv=notrunc" ;;
    cache-4k | weft-4k) echo "dd if=%P/in of=%P/f bs=4k count=20000 conv=notrunc" ;;
    cache-64k | weft-64k) echo "dd if=%P/in of=%P/f bs=64k count=4000 conv=notrunc" ;;
    cache-1m | weft-1m) echo "dd if=%P/in of=%P/f bs=1M count=300 conv=notrunc" ;;
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

calls() {
    cat >"$dir/calls.c" <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
static char buffer[1 << 20];
static double spent(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    long sizes[] = {4096, 65536, 1048576}, counts[] = {400000, 60000, 4000};
    for (int i = 0; i < 16; i++)
        if (pwrite(fd, buffer, sizeof buffer, (long)i << 20) < 0) return 1;
    for (int what = 0; what < 4; what++)
        for (int size = 0; size < 3; size++) {
            long len = sizes[size], places = (16 << 20) / len;
            double before = spent();
            for (long n = 0; n < counts[size]; n++) {
                long at = n * 7 % places * len;
                if (what > 1 && n % places == 0) lseek(fd, 0, SEEK_SET);
                long done = what == 0 ? pread(fd, buffer, len, at) : what == 1 ? pwrite(fd, buffer, len, at)
                          : what == 2 ? read(fd, buffer, len) : write(fd, buffer, len);
                if (done != len) return 2;
            }
            const char *names[] = {"pread", "pwrite", "read", "write"};
            printf("%s-%ldk %.0f\n", names[what], len >> 10, (spent() - before) / counts[size]);
        }
}
END
    cc -O2 -w -o "$dir/calls" "$dir/calls.c"
    : >"$dir/times"
    for ((round = 0; round < (rounds + 2) / 3; round++)); do
        "$dir/calls" "$dir/plain/f" | sed 's/^/plain /' >>"$dir/times"
        "$weft" run --state "$dir/state" -- "$dir/calls" "$dir/plain/f" | sed 's/^/library /' >>"$dir/times"
        "$weft" run --no-cluster --trace "$dir/a.wtrace" -- "$dir/calls" "$dir/plain/f" 2>/dev/null |
            sed 's/^/traced /' >>"$dir/times"
    done
    printf '%-12s %9s %10s %9s %16s   least processor time of a call, in ns\n' call plain_ns library_ns traced_ns traced-library
    awk '!(($1, $2) in least) || $3 < least[$1, $2] { least[$1, $2] = $3 }
         !seen[$2]++ { order[++n] = $2 }
         END { for (i = 1; i <= n; i++) { c = order[i]
               printf "%-12s %9d %10d %9d %16d\n", c, least["plain", c], least["library", c], least["traced", c],
                      least["traced", c] - least["library", c] } }' "$dir/times"
}

mkdir "$dir/plain"
dd if=/dev/zero of="$dir/plain/in" bs=1M count=300 status=none
"$weft" run --state "$dir/state" -- sh -c "case '${cases[*]}' in *weft-*) cp '$dir/plain/in' /weft/in ;; esac"

echo "# $(uname -sr), $(nproc) processors, $rounds rounds in turns; plain files on $(stat -f -c %T "$dir/plain")"
if [ "${cases[0]}" = calls ]; then
    calls
    cases=("${cases[@]:1}")
    [ ${#cases[@]} -gt 0 ] || exit 0
fi
printf '%-10s %12s %14s %9s %11s %9s %9s %9s %9s\n' \
    case traced/plain traced/library min/plain min/library plain_s library_s traced_s records
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
        function shown(how) { return how in least ? sprintf("%.4f", least[how]) : "-" }
        function smallest(how) { return how in least ? sprintf("%.3f", least["traced"] / least[how]) : "-" }
        END { printf "%-10s %12s %14s %9s %11s %9s %9s %9s %9s\n", case, ratio("plain"), ratio("library"),
                     smallest("plain"), smallest("library"), shown("plain"), shown("library"), shown("traced"), records }' "$dir/times"
done
