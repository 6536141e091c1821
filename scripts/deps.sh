#!/usr/bin/env bash
# Checks the dependencies of a make target. Installs missing Debian packages if it may, and otherwise prints which
# packages to install.
#
# usage: scripts/deps.sh build|demo|test|bench|lint|darshan|mpich|distributed...
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

# command or file pattern to look for, and the Debian package that contains it
build=(cc:gcc ld:binutils)
demo=("${build[@]}" mpicc.mpich:libmpich-dev mpiexec.mpich:mpich h5pcc.mpich:libhdf5-mpich-dev h5dump:hdf5-tools)
test=("${demo[@]}" c++:g++ mpicc.openmpi:libopenmpi-dev mpiexec.openmpi:openmpi-bin pkg-config:pkg-config python3:python3 fusermount3:fuse3 ip:iproute2 kill:procps strace:strace sqlite3:sqlite3 git:git rsync:rsync flock:util-linux /usr/lib/*/libjemalloc.a:libjemalloc-dev /usr/lib/*/libtcmalloc_minimal.a:libgoogle-perftools-dev)
# GlusterFS; see scripts/distributed.sh
distributed=(glusterfsd:glusterfs-server glusterfs:glusterfs-client python3:python3 umount:mount)
# pip only: no Debian package has Darshan's library
darshan=(pip3:python3-pip)
# release of libdarshan-util that the tests use; see docs/design/darshan.md
darshan_release=3.5.0
# pip only: Debian's MPICH does not support MPI_Comm_spawn
mpich=(pip3:python3-pip)
mpich_release=5.0.2

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

# Installs Darshan's library for reading logs from its wheel, without the Python packages that the wheel requires.
install_darshan() {
    local dir=${XDG_DATA_HOME:-$HOME/.local/share}/weft/darshan log
    if compgen -G "$dir/darshan-$darshan_release.dist-info" >/dev/null; then
        return
    fi
    log=$(mktemp)
    say "weft: installing darshan $darshan_release into $dir"
    rm -rf "$dir"
    mkdir -p "$dir"
    pip3 install --quiet --disable-pip-version-check --no-deps --target "$dir" "darshan==$darshan_release" >"$log" 2>&1 || {
        tail -20 "$log" >&2
        say "weft: pip could not install darshan $darshan_release; Darshan logs cannot be read without it."
        say "  If it is not available, WEFT_SKIP_DARSHAN=1 skips the tests of such logs."
        exit 1
    }
    rm -f "$log"
}

# Installs MPICH with the standard ABI from its wheel.
install_mpich() {
    local dir=${XDG_DATA_HOME:-$HOME/.local/share}/weft/mpich log
    if [ -e "$dir/$mpich_release" ]; then
        return
    fi
    log=$(mktemp)
    say "weft: installing MPICH $mpich_release into $dir"
    rm -rf "$dir"
    mkdir -p "$dir"
    # Debian's pip would add "local" to the prefix, and refuses to install outside of virtual environments.
    DEB_PYTHON_INSTALL_LAYOUT=deb PIP_BREAK_SYSTEM_PACKAGES=1 pip3 install --quiet --disable-pip-version-check --no-deps \
        --ignore-installed --prefix "$dir" "mpich==$mpich_release" >"$log" 2>&1 || {
        tail -20 "$log" >&2
        say "weft: pip could not install MPICH $mpich_release; MPI_Comm_spawn cannot be tested with it."
        say "  If it is not available, WEFT_SKIP_MPICH=1 skips these tests."
        exit 1
    }
    touch "$dir/$mpich_release"
    rm -f "$log"
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
        *) say "usage: $0 build|demo|test|bench|lint|darshan|mpich|distributed..."; exit 2 ;;
    esac
    [[ $kind = darshan || $kind = mpich || $kind = distributed ]] || need_rust
    packages=$(missing_packages "${list[@]}")
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
