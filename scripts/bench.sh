#!/usr/bin/env bash
# Measurements of `make bench`: an embedded cluster on the disk under target/, through every interface. Each figure is
# compared with the plain local directory on the same disk in the same round.
#
# usage: scripts/bench.sh [options of `weft bench`]      e.g. scripts/bench.sh --json --rounds 5
#        scripts/bench.sh --integrity --transports auto,socket   checksums at rest, compared with none
set -euo pipefail
cd "$(dirname "$0")/.."
weft=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weft
mkdir -p target
dir=$(mktemp -d "$PWD/target/bench.XXXXXX")
export WEFT_STATE=$dir/state
unset WEFT_CLUSTER
finish() {
    "$weft" umount "$dir/mount" >/dev/null 2>&1 || true
    "$weft" stop --state "$WEFT_STATE" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$dir"
}
trap finish EXIT

"$weft" run --state "$WEFT_STATE" --fresh --yes --idle-exit "5 min" -- true
echo "# $(nproc) processors, $(uname -sr), file system $(stat -f -c %T "$dir"), load $(cut -d' ' -f1 /proc/loadavg) at the start" >&2
case " $* " in
    *" --transports"*) ways=() ;;
    *) ways=(--transports descriptor,socket) ;;
esac
"$weft" bench --interfaces preload,library "${ways[@]}" "$@"
if [ -e /dev/fuse ]; then
    mkdir "$dir/mount"
    "$weft" mount "$dir/mount" >&2
    "$weft" bench --interfaces fuse --transports auto --mount "$dir/mount" "$@"
else
    echo "# no /dev/fuse here: the mount was not measured" >&2
fi
