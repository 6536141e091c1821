#!/usr/bin/env bash
# Builds the image of contrib/container with buildah, and runs Weft in it. The base images are made here with
# debootstrap and the Rust toolchain of this machine, so that no registry of images is needed.
#
# usage: scripts/container.sh     as root; the first time as long as a release build, 4 GB in target/container
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
say() { printf '%s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "scripts/container.sh: only root can make a system: run it as root"; exit 1; }
command -v cargo >/dev/null || { say "scripts/container.sh: cargo is missing"; exit 1; }
toolchain=$(rustc --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}

work=$(mktemp -d)
# No daemon, no overlay file system, no other namespaces than chroot needs: this also runs in a container.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
storage=(--root "$work/storage" --runroot "$work/run")
trap 'rm -rf --one-file-system "$work"' EXIT

say "making Debian $suite"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/base" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; exit 1; }
cp /etc/apt/sources.list.d/*.sources "$work/base/etc/apt/sources.list.d/" 2>/dev/null || true

# usage: image NAME [COMMAND...]: makes an image of the base system.
image() {
    local container
    container=$(buildah "${storage[@]}" from scratch)
    buildah "${storage[@]}" copy -q "$container" "$work/base" / >/dev/null
    [ $# -lt 2 ] || buildah "${storage[@]}" config "${@:2}" "$container"
    buildah "${storage[@]}" commit -q "$container" "$1" >/dev/null
    buildah "${storage[@]}" rm "$container" >/dev/null
}
image localhost/debian
image localhost/rust --env PATH=/toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin --env CARGO_HOME=/cargo

say "building the image"
mkdir -p "$target/container" "$work/cargo"
for part in config.toml registry; do
    [ ! -e "$cargo_home/$part" ] || cp -r "$cargo_home/$part" "$work/cargo/"
done
git ls-files -z | xargs -0 cp --parents -t "$(mkdir -p "$work/tree" && echo "$work/tree")"
buildah "${storage[@]}" build -q --build-arg BUILDER=localhost/rust --build-arg BASE=localhost/debian \
    --volume "$toolchain:/toolchain:ro" --volume "$work/cargo:/cargo" --volume "$target/container:/src/target" \
    -f contrib/container/Containerfile -t localhost/weft "$work/tree" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }

say "running Weft in it"
container=$(buildah "${storage[@]}" from localhost/weft)
entry=$(buildah "${storage[@]}" inspect --format '{{index .OCIv1.Config.Entrypoint 0}}' "$container")
[ "$entry" = /usr/bin/weft ] || { say "entry point $entry"; exit 1; }
run() { buildah "${storage[@]}" run "$container" -- "$@"; }
run "$entry" --version
# One run, because the servers end with its process namespace.
found=$(run sh -c "$entry run -- sh -c 'seq 100000 > /weft/a; tail -n 1 /weft/a' && $entry stop")
[[ $found == 100000* ]] || { say "$found"; exit 1; }
say "the image has $(du -sh --apparent-size "$(buildah "${storage[@]}" mount "$container")" | cut -f1), and Weft runs in it"
buildah "${storage[@]}" umount "$container" >/dev/null
