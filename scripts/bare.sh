#!/usr/bin/env bash
# Runs commands in a minimal Debian, by default the two of README.md, `make demo` and `make test`, with the Rust toolchain
# of this machine: shows that they install what they need, and that nothing of this machine is needed. The system is made
# with debootstrap in a temporary directory, and is removed. Its /dev/fuse has the usual mode 0666.
#
# usage: scripts/bare.sh [SUITE [COMMAND]]     as root; on 2 cores about an hour, 25 GB in /tmp or $TMPDIR
#
# COMMAND is a shell command in the tree, such as "scripts/deps.sh build && cargo build -p weft-cli".
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-bookworm}
command=${2:-make demo && make test}
say() { printf '%s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "scripts/bare.sh: only root can make a system: run it as root"; exit 1; }
command -v debootstrap >/dev/null || { say "scripts/bare.sh: debootstrap is missing: apt-get install debootstrap"; exit 1; }
command -v cargo >/dev/null || { say "scripts/bare.sh: cargo is missing"; exit 1; }

toolchain=$(rustc --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
room=$(mktemp -d)
root=$room/debian
# Mounts end with the mount namespace of the second half, below.
trap 'rm -rf --one-file-system "$room"' EXIT

say "making Debian $suite in $root"
debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" >"$room/log" 2>&1 || { tail -5 "$room/log" >&2; exit 1; }
# Not /weft, which is the default prefix of `weft run`.
mkdir -p "$root/src/weft" "$root/toolchain" "$root/cargo"
git ls-files -z | xargs -0 cp --parents -t "$root/src/weft"
# Some tests ask git for the files of the tree.
git -C "$root/src/weft" init --quiet
git -C "$root/src/weft" add --all
cp /etc/resolv.conf "$root/etc/"

# Sources of crates are copied, so that nothing of this machine changes.
for part in config.toml registry; do
    [ ! -e "$cargo_home/$part" ] || cp -r "$cargo_home/$part" "$root/cargo/"
done

# Package servers are reached in the way of this machine.
settings=()
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL CI; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
done
if [ -n "${SSL_CERT_FILE:-}" ]; then
    cp -L "$SSL_CERT_FILE" "$root/etc/ssl/certs/of-this-machine.crt"
    settings+=(SSL_CERT_FILE=/etc/ssl/certs/of-this-machine.crt PIP_CERT=/etc/ssl/certs/of-this-machine.crt)
fi

export root toolchain command
unshare --mount --propagation private bash -euo pipefail -c '
    mount --bind "$root" "$root"
    mount --bind "$toolchain" "$root/toolchain"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    mkdir -m 1777 "$root/dev/shm"
    mkdir "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    ln -s pts/ptmx "$root/dev/ptmx"
    for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
        read -r name major minor <<<"$device"
        mknod -m 666 "$root/dev/$name" c "$major" "$minor"
    done
    # With chroot, no program could make namespaces of users and mounts.
    mkdir "$root/former"
    cd "$root"
    pivot_root . former
    umount -l /former
    rmdir /former
    exec env -i HOME=/root CARGO_HOME=/cargo CARGO_INCREMENTAL=0 TERM=dumb "$@" \
        PATH=/toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin COMMAND="$command" bash -euo pipefail -c "
        cd /src/weft
        if echo \"int main(void) { return 0; }\" | cc -x c -o /dev/null - 2>/dev/null; then
            echo \"this system links C programs already, so it shows nothing\" >&2
            exit 1
        fi
        eval \"\$COMMAND\"
    "
' bash ${settings[@]+"${settings[@]}"}
say "in a minimal Debian $suite: $command: succeeded"
