#!/usr/bin/env bash
# Gain and cost of an SSD as cache of each disk, with real servers: clusters of four `weft serve` processes that only
# differ in [server.target.ibridge]. `weft bench --against` measures them alternately.
#
# usage: scripts/ibridge.sh gain [options of `weft bench`]   emulated disks and SSDs, unaligned writes to one shared
#                                                            file, including write-back and sync of all bytes
#        scripts/ibridge.sh cost [options of `weft bench`]   plain directories on the disk under target/, by socket, so
#                                                            no gain is possible; `alike` is a second cluster without
#                                                            SSDs, and shows random variation; two minutes
#
# Environment: HDD and SSD are the emulated profiles, MODULE the I/O module of the targets, POLICY the policy (for cost:
# policies), BELOW the limit of small requests, STRIPE the stripe size.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?gain or cost}
shift
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "${DIR:-$PWD/target}/ibridge.XXXXXX")
unset WEFT_CLUSTER WEFT_STATE
. scripts/clusters.sh
trap 'stop_clusters; rm -rf --one-file-system "$dir"' EXIT

stripe=${STRIPE:-64 KiB}
case $what in
gain)
    policy=${POLICY:-detour}
    hdd=${HDD:-ibridge-hdd} ssd=${SSD:-ibridge-ssd} module=${MODULE:-direct} below=${BELOW:-20 KiB}
    start_cluster "$dir/off" "$stripe" "module = \"$module\"
emulate = \"$hdd\""
    start_cluster "$dir/on" "$stripe" "module = \"$module\"
emulate = \"$hdd\"" "size = \"${SIZE:-256 MiB}\"
policy = \"$policy\"
fragments_below = \"$below\"
random_below = \"$below\"
emulate = \"$ssd\""
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
    echo "usage: scripts/ibridge.sh gain|cost [options of weft bench]" >&2
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
