#!/usr/bin/env bash
# Checks the dependencies of a make target. Installs missing Debian packages if it may, and otherwise prints which
# packages to install.
#
# usage: scripts/deps.sh KIND..., with the kinds at the end of this file
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

# command or file pattern to look for, and the Debian package that contains it
# The files of the C library that programs are linked with come with libc6-dev, which gcc does not require.
build=(cc:gcc ld:binutils /usr/lib/*/crt1.o:libc6-dev)
demo=("${build[@]}" mpicc.mpich:libmpich-dev mpiexec.mpich:mpich h5pcc.mpich:libhdf5-mpich-dev h5dump:hdf5-tools)
test=("${demo[@]}" c++:g++ gfortran:gfortran mpicc.openmpi:libopenmpi-dev mpiexec.openmpi:openmpi-bin pkg-config:pkg-config python3:python3 fusermount3:fuse3 ip:iproute2 kill:procps strace:strace sqlite3:sqlite3 systemd-analyze:systemd /usr/share/modules/init/sh:environment-modules lua5.3:lua5.3 git:git rsync:rsync flock:util-linux /usr/lib/*/libjemalloc.a:libjemalloc-dev /usr/lib/*/libtcmalloc_minimal.a:libgoogle-perftools-dev)
# GlusterFS; see scripts/distributed.sh
distributed=(glusterfsd:glusterfs-server glusterfs:glusterfs-client python3:python3 umount:mount)
# see scripts/monitoring.py
monitoring=(prometheus:prometheus promtool:prometheus python3:python3)
# Debian's Slurm and network namespaces; see scripts/slurm.py
slurm=(slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge ip:iproute2 nsenter:util-linux pgrep:procps python3:python3 shellcheck:shellcheck)
# see scripts/deb.sh
deb=(dh:debhelper dpkg-buildpackage:dpkg-dev fakeroot:fakeroot lintian:lintian debootstrap:debootstrap)
# see scripts/bare.sh
bare=(debootstrap:debootstrap unshare:util-linux git:git)
# see scripts/container.sh
container=(buildah:buildah debootstrap:debootstrap)
# see scripts/aarch64.sh
aarch64=(debootstrap:debootstrap)
# pip only: no Debian package has Darshan's library
darshan=(pip3:python3-pip)
# release of libdarshan-util that the tests use; see docs/design/darshan.md
darshan_release=3.5.0
# pip only: Debian's MPICH does not support MPI_Comm_spawn
mpich=(pip3:python3-pip)
mpich_release=5.0.2

# wheels; `make python` installs the rest into virtual environments (scripts/python.sh)
python=(python3:python3 objdump:binutils cc:gcc /usr/lib/*/crt1.o:libc6-dev)
# see scripts/ai.py
ai=("${python[@]}" fusermount3:fuse3)

need_rust() {
    if ! command -v cargo >/dev/null; then
        say "weft: cargo is missing (Rust 1.90 or newer; Debian 12's own package is too old)."
        say "  install it for this user:  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
        say "  then open a new shell, or:  . \"\$HOME/.cargo/env\""
        exit 1
    fi
    local version
    version=$(rustc --version | sed 's/^rustc \([0-9]*\)\.\([0-9]*\).*/\1 \2/')
    read -r major minor <<<"$version"
    if [ "$major" -lt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -lt 90 ]; }; then
        say "weft: $(rustc --version) is too old: Rust 1.90 or newer is needed; run: rustup update stable"
        exit 1
    fi
}

missing_packages() {
    local pair
    for pair in "$@"; do
        compgen -G "${pair%%:*}" >/dev/null || PATH="$PATH:/usr/sbin:/sbin" type -P "${pair%%:*}" >/dev/null || printf '%s\n' "${pair#*:}"
    done | sort -u | tr '\n' ' '
}

install() {
    local packages=$1 sudo=()
    if ! command -v apt-get >/dev/null; then
        say "weft: this system has no apt-get; install the equivalents of the Debian packages: $packages"
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            sudo=(sudo)
        else
            say "weft: these packages are missing, and only root can install them:"
            say "  sudo apt-get install $packages"
            exit 1
        fi
    fi
    local log
    log=$(mktemp)
    say "weft: installing $packages"
    # shellcheck disable=SC2086
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >"$log" 2>&1 || {
        # The package lists may be outdated or missing.
        "${sudo[@]}" apt-get update >>"$log" 2>&1 || true
        # shellcheck disable=SC2086
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >>"$log" 2>&1 || {
            tail -20 "$log" >&2
            say "weft: apt-get could not install: $packages"
            exit 1
        }
    }
    rm -f "$log"
}

# usage: install_wheel NAME RELEASE PURPOSE OPTION...
# Installs a wheel into a directory of its own, without the Python packages that it requires. The last OPTION of pip takes
# that directory.
install_wheel() {
    local name=$1 release=$2 purpose=$3 dir=${XDG_DATA_HOME:-$HOME/.local/share}/weft/$1 log
    shift 3
    if [ -e "$dir/installed-$release" ]; then
        return
    fi
    log=$(mktemp)
    say "weft: installing $name $release into $dir"
    rm -rf "$dir"
    mkdir -p "$dir"
    pip3 install --quiet --disable-pip-version-check --no-deps "$@" "$dir" "$name==$release" >"$log" 2>&1 || {
        tail -20 "$log" >&2
        say "weft: pip could not install $name $release, which is needed for $purpose."
        say "  If it is not available, WEFT_SKIP_${name^^}=1 skips the tests."
        exit 1
    }
    touch "$dir/installed-$release"
    rm -f "$log"
}

# Installs Darshan's library for reading logs.
install_darshan() {
    install_wheel darshan "$darshan_release" "reading Darshan logs" --target
}

# Installs MPICH with the standard ABI.
install_mpich() {
    # Debian's pip would add "local" to the prefix, and refuses to install outside of virtual environments.
    DEB_PYTHON_INSTALL_LAYOUT=deb PIP_BREAK_SYSTEM_PACKAGES=1 \
        install_wheel mpich "$mpich_release" "testing MPI_Comm_spawn" --ignore-installed --prefix
}

for kind in "${@:-build}"; do
    case $kind in
        build | lint) list=("${build[@]}") ;;
        demo) list=("${demo[@]}") ;;
        test) list=("${test[@]}" "${darshan[@]}" "${mpich[@]}") ;;
        bench) list=("${test[@]}") ;;
        darshan) list=("${darshan[@]}") ;;
        mpich) list=("${mpich[@]}") ;;
        distributed) list=("${distributed[@]}") ;;
        monitoring) list=("${monitoring[@]}") ;;
        python) list=("${python[@]}") ;;
        ai) list=("${ai[@]}") ;;
        slurm) list=("${slurm[@]}") ;;
        bare) list=("${bare[@]}") ;;
        deb) list=("${deb[@]}") ;;
        container) list=("${container[@]}") ;;
        aarch64) list=("${aarch64[@]}") ;;
        *) say "usage: $0 build|demo|test|bench|lint|darshan|mpich|distributed|monitoring|python|ai|slurm|bare|deb|container|aarch64..."; exit 2 ;;
    esac
    case $kind in build | demo | test | bench | lint) need_rust ;; esac
    packages=$(missing_packages "${list[@]}")
    # Debian's python3 makes virtual environments only with a package of its own.
    if [ "$kind" = python ] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        packages+="python3-venv "
    fi
    [ -z "$packages" ] || install "$packages"
    case $kind in
        test)
            [ -n "${WEFT_SKIP_DARSHAN:-}" ] || install_darshan
            [ -n "${WEFT_SKIP_MPICH:-}" ] || install_mpich
            ;;
        darshan) install_darshan ;;
        mpich) install_mpich ;;
    esac
done
