#!/usr/bin/env bash
# The Python package weft-fs. `make python`, `make python-test`, `make python-bench` and `make ai` call this.
#
# usage: scripts/python.sh wheel|test|bench|ai PROFILE [OPTION...]
#
#   wheel   builds the wheel into TARGET/python/dist, with the library of TARGET/PROFILE
#   test    installs it into a virtual environment, checks types, and runs its tests in isolation; options: pytest
#   bench   measures it beside the C interface; options: python/bench/read.py
#   ai      runs AI and data programs, in isolation; options: scripts/ai.py
#
# PROFILE is release or debug. TARGET is $CARGO_TARGET_DIR or target. PYTHON is the interpreter, by default python3.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '4,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
what=$1 profile=$2
shift 2
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
root=$target/python
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=${PIP_CACHE_DIR:-$root/cache}

# usage: environment NAME REQUIREMENTS...
# Creates a virtual environment, or keeps that of an earlier run with equal requirements and interpreter.
environment() {
    local dir=$root/$1 stamp python=${PYTHON:-python3}
    shift
    stamp=$({ "$python" --version; cat "$@"; } | sha256sum)
    if [ "$(cat "$dir/installed" 2>/dev/null)" != "$stamp" ]; then
        echo "weft: installing the packages of $* into $dir" >&2
        rm -rf "$dir"
        "$python" -m venv "$dir"
        "$dir/bin/pip" install --quiet "${@/#/--requirement=}" || {
            echo "weft: pip could not install $*; make the Python Package Index reachable, or set" >&2
            echo "  PIP_FIND_LINKS to a directory with the wheels and PIP_NO_INDEX=1. WEFT_SKIP_PYTHON=1 skips this in make test." >&2
            exit 1
        }
        echo "$stamp" >"$dir/installed"
    fi
}

wheel() {
    environment build python/requirements-build.txt
    rm -rf "$root/dist"
    WEFT_LIBRARY=$target/$profile/libweft.so "$root/build/bin/pip" wheel --quiet --no-deps --no-build-isolation \
        --wheel-dir "$root/dist" ./python
    ls "$root"/dist/weft_fs-*.whl
}

# usage: install NAME REQUIREMENTS...
install() {
    environment "$@"
    "$root/$1/bin/pip" install --quiet --force-reinstall --no-deps "$root"/dist/weft_fs-*.whl
}

case $what in
    wheel) wheel ;;
    test)
        install venv python/tests/requirements.txt
        "$root/venv/bin/mypy" --config-file python/pyproject.toml --cache-dir "$root/mypy"
        WEFT_TEST_COMMAND=$target/$profile/weft scripts/isolated.py "$root/venv/bin/python" -B -m pytest -q python/tests "$@"
        ;;
    bench)
        install venv python/tests/requirements.txt
        WEFT_TEST_COMMAND=$target/$profile/weft "$root/venv/bin/python" -B python/bench/read.py --library "$target/$profile" "$@"
        ;;
    ai)
        requirements=(scripts/ai/requirements.txt)
        [ -n "${WEFT_SKIP_TORCH:-}" ] || requirements+=(scripts/ai/requirements-torch.txt)
        install ai "${requirements[@]}"
        scripts/isolated.py "$root/ai/bin/python" scripts/ai.py --weft "$target/$profile/weft" "$@"
        ;;
    *) usage ;;
esac
