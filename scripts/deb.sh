#!/usr/bin/env bash
# Makes Debian packages of the release build, checks them with lintian, and installs, uses and removes them in a minimal
# Debian system. The system is made with debootstrap in a temporary directory, and is removed.
#
# usage: scripts/deb.sh [SUITE]     as root; about 3 minutes, 1 GB in /tmp or $TMPDIR. Packages: target/debian/*.deb
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-bookworm}
target=${CARGO_TARGET_DIR:-target}
say() { printf '%s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "scripts/deb.sh: only root can make a system: run it as root"; exit 1; }
[ -x "$target/release/weft" ] || { say "scripts/deb.sh: $target/release/weft is missing: run make all"; exit 1; }

work=$(mktemp -d)
# Mounts end with the mount namespace below.
trap 'rm -rf --one-file-system "$work"' EXIT
# dpkg and users of the system read it.
chmod 755 "$work"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
mkdir "$work/build"
cp -r contrib/debian "$work/build/debian"
cat >"$work/build/debian/changelog" <<END
weft ($version-1) unstable; urgency=medium

  * Release $version.

 -- $(sed -n 's/^Maintainer: //p' contrib/debian/control)  $(LC_ALL=C git log -1 --format=%cD)
END
say "building packages"
(cd "$work/build" && WEFT_TREE=$OLDPWD dpkg-buildpackage -b -us -uc) >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
mkdir -p "$target/debian"
rm -f "$target"/debian/*.deb
mv "$work"/*.deb "$target/debian/"
say "checking them with lintian"
# The tag concerns uploads to Debian.
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs --tag-display-limit 0 "$target"/debian/*.deb >&2

root=$work/root
say "making Debian $suite"
debootstrap --variant=minbase "$suite" "$root" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; exit 1; }
cp "$target"/debian/*.deb "$root/var/cache/apt/archives/"
cp /etc/resolv.conf "$root/etc/"

cat >"$root/check" <<'END'
set -eu
# Lists the files of the system outside of caches and of dpkg's own records.
files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache \
        -o -path /var/log \) -prune -o -print | sort
}
cd /var/cache/apt/archives
files >/tmp/before
# Without recommended packages, so that only the stated dependencies are there.
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ./weft_*.deb ./libweft0_*.deb ./libweft-dev_*.deb
weft --version
HOME=/root weft run --state /tmp/state -- sh -c 'seq 100000 > /weft/numbers; tail -n 1 /weft/numbers' | grep -qx 100000
HOME=/root weft stop --help >/dev/null
HOME=/root WEFT_STATE=/tmp/state weft cp /weft/numbers /tmp/numbers
seq 100000 | cmp - /tmp/numbers
WEFT_STATE=/tmp/state weft stop
# The prolog reads the installed configuration and starts nothing for a job without Weft.
SLURM_JOB_ID=1 SLURM_JOB_UID=0 SLURM_JOB_CONSTRAINTS=other /usr/libexec/weft/slurm/prolog
# The helper of mount(8) checks its arguments. Only a mount would need /dev/fuse.
mount.weft -f /etc/weft/cluster.toml:/ /mnt -o ro,_netdev,nofail
test -e /usr/share/man/man8/mount.weft.8.gz -a -e /usr/lib/sysusers.d/weft.conf
test -e /usr/share/man/man1/weft.1.gz -a -e /lib/systemd/system/weft@.service -a -e /lib/systemd/system/weft-mount@.service -a -e /usr/share/bash-completion/completions/weft
test "$(dpkg-query -W -f '${Conffiles}' weft | grep -c .)" = 1
dpkg -r weft libweft-dev libweft0
files >/tmp/after
comm -13 /tmp/before /tmp/after >/tmp/left
printf '%s\n' /etc/weft /etc/weft/slurm.conf | cmp - /tmp/left || { cat /tmp/left; exit 1; }
dpkg -P weft
test ! -e /etc/weft
END
say "installing, using and removing the packages"
# shellcheck disable=SC2016
root=$root unshare --mount --pid --fork --propagation private bash -euo pipefail -c '
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /check
' >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
grep -m1 '^weft [0-9]' "$work/log"
say "packages install, work and are removed without remains:"
ls "$target"/debian/*.deb
