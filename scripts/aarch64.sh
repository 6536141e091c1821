#!/usr/bin/env bash
# Compiles and links Weft for 64-bit ARM, and runs the command under QEMU. Debian sid has the compiler, the standard
# library of Rust for ARM, and the linker. So rustup needs no further target.
#
# usage: scripts/aarch64.sh     as root; 10 to 20 minutes, 5 GB in target/aarch64, which later runs use again
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "scripts/aarch64.sh: only root can make a system: run it as root"; exit 1; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/aarch64
system=$target/system
cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$target/build"

if [ ! -e "$system/made" ]; then
    say "making Debian sid in $system"
    rm -rf --one-file-system "$system"
    debootstrap --variant=minbase sid "$system" >"$target/log" 2>&1 || { tail -5 "$target/log" >&2; exit 1; }
    cp /etc/resolv.conf "$system/etc/"
    # A mirror may be older than the validity of its index; signatures are checked.
    chroot "$system" sh -euc '
        export DEBIAN_FRONTEND=noninteractive
        dpkg --add-architecture arm64
        apt-get -q -o Acquire::Check-Valid-Until=false update
        apt-get -q install -y --no-install-recommends rustc cargo gcc libc6-dev \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross libstd-rust-dev:arm64 qemu-user
        apt-get clean
        touch /made
    ' >"$target/log" 2>&1 || { tail -10 "$target/log" >&2; exit 1; }
fi

export system target tree=$PWD cargo_home
mkdir -p "$system/tree" "$system/build" "$system/cargo"
# Sources of crates are copied, so that nothing of this machine changes.
for part in config.toml registry; do
    [ ! -e "$cargo_home/$part" ] || cp -r --update "$cargo_home/$part" "$system/cargo/"
done
say "compiling"
# Mounts end with the mount namespace.
# shellcheck disable=SC2016
unshare --mount --pid --fork --propagation private bash -euo pipefail -c '
    mount --bind "$tree" "$system/tree"
    mount -o remount,bind,ro "$system/tree"
    mount --bind "$target/build" "$system/build"
    mount -t proc proc "$system/proc"
    mount --bind /dev "$system/dev"
    # Without debug information, which nobody reads here.
    chroot "$system" env -i HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/build TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        CARGO_PROFILE_DEV_DEBUG=0 RUSTFLAGS="--cap-lints warn" sh -euc "
        cd /tree
        rustc --version
        cargo build --locked --target aarch64-unknown-linux-gnu -p weft-cli -p weft-preload -p weft-capi
        cd /build/aarch64-unknown-linux-gnu/debug
        qemu-aarch64 ./weft --version
        qemu-aarch64 ./weft config example >/tmp/cluster.toml
        # Client, servers, formats and checksums, in one process.
        qemu-aarch64 ./weft twin run ior --set ranks=2
    "
'
say "Weft compiles for aarch64, and the command runs under QEMU"
