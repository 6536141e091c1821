#!/usr/bin/env bash
# Builds Weft in a minimal Debian, with the Rust toolchain of this machine: shows that scripts/deps.sh installs what
# compiling and linking need. The system is made with debootstrap in a temporary directory, and is removed.
#
# usage: scripts/bare.sh [SUITE]     as root; 3 to 10 minutes, 2 GB in /tmp or $TMPDIR
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-bookworm}
say() { printf '%s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "scripts/bare.sh: only root can make a system: run it as root"; exit 1; }
command -v debootstrap >/dev/null || { say "scripts/bare.sh: debootstrap is missing: apt-get install debootstrap"; exit 1; }
command -v cargo >/dev/null || { say "scripts/bare.sh: cargo is missing"; exit 1; }

toolchain=$(rustc --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
root=$(mktemp -d)
# Mounts end with the mount namespace of the second half, below.
trap 'rm -rf --one-file-system "$root"' EXIT

say "making Debian $suite in $root"
debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
rm -f "$root.log"
mkdir -p "$root/weft" "$root/toolchain" "$root/cargo"
git ls-files -z | xargs -0 cp --parents -t "$root/weft"
cp /etc/resolv.conf "$root/etc/"

# Sources of crates are copied, so that nothing of this machine changes.
for part in config.toml registry; do
    [ ! -e "$cargo_home/$part" ] || cp -r "$cargo_home/$part" "$root/cargo/"
done

export root toolchain
unshare --mount --propagation private bash -euo pipefail -c '
    mount --bind "$toolchain" "$root/toolchain"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    chroot "$root" env -i HOME=/root CARGO_HOME=/cargo TERM=dumb \
        PATH=/toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euo pipefail -c "
        cd /weft
        if echo \"int main(void) { return 0; }\" | cc -x c -o /dev/null - 2>/dev/null; then
            echo \"this system links C programs already, so it shows nothing\" >&2
            exit 1
        fi
        scripts/deps.sh build
        cargo build -p weft-cli -p weft-preload -p weft-capi
        target/debug/weft --version
    "
'
say "scripts/deps.sh build installs what the build needs"
