#!/usr/bin/env bash
# Gain and cost of an SSD as cache of each disk, with real servers: clusters of four `weft serve` processes that only
# differ in [server.target.ibridge]. `weft bench --against` measures them alternately.
#
# usage: scripts/ibridge.sh gain [options of `weft bench`]   emulated disks and SSDs, unaligned writes to one shared
#                                                            file, including write-back and sync of all bytes
#        scripts/ibridge.sh cost [options of `weft bench`]   plain directories on the disk under target/, by socket, so
#                                                            no gain is possible; `alike` is a second cluster without
#                                                            SSDs, and shows random variation; two minutes
#        scripts/ibridge.sh profiles                         gain by emulated disk, I/O module and number of ranks, with
#                                                            and without write-back; at most LIMIT seconds (1200) and
#                                                            three minutes more
#
# Environment: HDD and SSD are the emulated profiles, MODULE the I/O module of the targets, POLICY the policy (for cost:
# policies), BELOW the limit of small requests, STRIPE the stripe size. For profiles, HDD, MODULE and RANKS are lists;
# hdd-7200-uncached is hdd-7200 with its write cache off. SSD is sata-ssd there, and ROUNDS the number of rounds (3).
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?gain, cost or profiles}
shift
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "${DIR:-$PWD/target}/ibridge.XXXXXX")
unset WEFT_CLUSTER WEFT_STATE
. scripts/clusters.sh
trap 'stop_clusters; rm -rf --one-file-system "$dir"' EXIT

stripe=${STRIPE:-64 KiB}

# start_pair NAME DISK MODULE SSD POLICY BELOW: starts the clusters NAME/off and NAME/on, which differ in their SSDs.
start_pair() {
    local disk="module = \"$3\"
emulate = \"$2\""
    start_cluster "$1/off" "$stripe" "$disk"
    start_cluster "$1/on" "$stripe" "$disk" "size = \"${SIZE:-256 MiB}\"
policy = \"$5\"
fragments_below = \"$6\"
random_below = \"$6\"
emulate = \"$4\""
}

# gain NAME OPTION...: measures the pair of clusters NAME on new files. Prints the seconds of a round without and with
# SSDs, and the gain, or dashes if the measurement fails or takes more than a minute.
gain() {
    local name=$1 row
    shift
    row=$(timeout 60 "$weft" --cluster "$name/on/cluster.toml" bench --against "$name/off/cluster.toml" --json \
        --interfaces library --transports socket --files 0 --rounds "${ROUNDS:-3}" "$@") || row=
    row=$(sed -n 's/.*"ratio":\([0-9.]*\).*"seconds":\([0-9.]*\),"control_seconds":\([0-9.]*\).*/\3 \2 \1/p' <<<"$row")
    awk 'NF { printf "%9.2f %7.2f %5.2f\n", $1, $2, $3; next } { printf "%9s %7s %5s\n", "-", "-", "-" }' <<<"$row"
}

# Measures all disks, modules and numbers of ranks. All ranks together write 16 MiB, interleaved in pieces of 47,008 bytes.
profiles() {
    local limit=${LIMIT:-1200} ssd=${SSD:-sata-ssd} policy=${POLICY:-detour} below=${BELOW:-20 KiB}
    local hdd disk module ranks share name synced disks
    echo "# four servers, disks and SSDs EMULATED: SSD $ssd, policy $policy, stripe size $stripe; ${ROUNDS:-3} rounds; seconds are medians"
    echo "# $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg) at the start; ends after $limit s"
    echo "# synced: until the ranks have synced their file; on disks: until the SSDs are written back as well; gain: without / with SSDs"
    printf '%-18s %-8s %5s  %9s %7s %5s  %9s %7s %5s\n' disk module ranks "synced s" "with" gain "on disks" "with" gain
    sed 's/^name = .*/name = "hdd-7200-uncached"/; s/^write_cache_kib = .*/write_cache_kib = 0/' \
        crates/twin/models/profiles/hdd-7200.toml >"$dir/hdd-7200-uncached.toml"
    for hdd in ${HDD:-hdd-7200 hdd-7200-uncached hdd-nearline ibridge-hdd}; do
        disk=$hdd
        [ "$hdd" != hdd-7200-uncached ] || disk=$dir/hdd-7200-uncached.toml
        for module in ${MODULE:-direct buffered}; do
            name=$dir/pair
            ((SECONDS >= limit)) || start_pair "$name" "$disk" "$module" "$ssd" "$policy" "$below"
            for ranks in ${RANKS:-4 16 64}; do
                if ((SECONDS >= limit)); then
                    printf '%-18s %-8s %5s  not measured: the limit of %s s has passed\n' "$hdd" "$module" "$ranks" "$limit"
                    continue
                fi
                share=$((16777216 / ranks / 47008 * 47008))
                # A workload, because only its pass writes a new file and syncs it within the measured time.
                synced=$(gain "$name" --workload ior --ranks "$ranks" --set transfer=47008 --set "per_rank=$share" \
                    --set layout=strided --set access=write --set sync=end)
                disks=$(gain "$name" --flush --writes-only --ranks "$ranks" --size "$share" --transfers 47008 \
                    --patterns interleaved)
                printf '%-18s %-8s %5s  %s  %s\n' "$hdd" "$module" "$ranks" "$synced" "$disks"
            done
            stop_clusters
            rm -rf --one-file-system "$name"
        done
    done
    echo "# load $(cut -d' ' -f1-3 /proc/loadavg) at the end, after $SECONDS s"
}

case $what in
profiles)
    profiles
    exit 0
    ;;
gain)
    policy=${POLICY:-detour}
    hdd=${HDD:-ibridge-hdd} ssd=${SSD:-ibridge-ssd} module=${MODULE:-direct} below=${BELOW:-20 KiB}
    start_pair "$dir" "$hdd" "$module" "$ssd" "$policy" "$below"
    on=$dir/on/cluster.toml beside=()
    usual=(--ranks 16 --size 6MiB --transfers 47008,65KiB --patterns interleaved --rounds 3 --flush --writes-only)
    echo "# four servers, disks and SSDs EMULATED: $hdd ($module), $ssd; policy $policy for requests below $below, stripe size $stripe; 'other' is the same cluster without SSDs"
    ;;
cost)
    start_cluster "$dir/off" "$stripe" ""
    start_cluster "$dir/alike" "$stripe" ""
    on=$dir/alike/cluster.toml beside=()
    for policy in ${POLICY:-ibridge detour}; do
        start_cluster "$dir/$policy" "$stripe" "" "size = \"${SIZE:-256 MiB}\"
policy = \"$policy\""
        beside+=(--beside "$dir/$policy/cluster.toml")
    done
    usual=(--ranks 4 --size 16MiB --transfers 1MiB,64KiB,47008,4KiB --patterns segmented --rounds 7 --at-least 0.3)
    echo "# four servers on plain directories, stripe size $stripe; 'other' and 'alike' have no SSDs"
    ;;
*)
    echo "usage: scripts/ibridge.sh gain|cost [options of weft bench], or scripts/ibridge.sh profiles" >&2
    exit 2
    ;;
esac
echo "# $(nproc) processors, $(uname -sr), file system $(stat -f -c %T "$dir"), load $(cut -d' ' -f1-3 /proc/loadavg) at the start"
# Options of the caller take precedence over the defaults.
options=()
for ((at = 0; at < ${#usual[@]}; at++)); do
    value=("${usual[at + 1]-}")
    [[ ${value[0]} == --* || -z ${value[0]} ]] && value=()
    [[ " $* " == *" ${usual[at]} "* ]] || options+=("${usual[at]}" ${value[@]+"${value[@]}"})
    at=$((at + ${#value[@]}))
done
"$weft" --cluster "$on" bench --against "$dir/off/cluster.toml" ${beside[@]+"${beside[@]}"} --interfaces library \
    --transports socket --files 0 ${options[@]+"${options[@]}"} "$@"
if [ "$what" = gain ]; then
    "$weft" --cluster "$on" status -v | grep -i -A4 ssd || true
fi
echo "# load $(cut -d' ' -f1-3 /proc/loadavg) at the end"
