#!/bin/sh
# Installs the C interface: header, libraries and weft.pc.
#
#     crates/interfaces/capi/install.sh [--prefix DIR] [--libdir DIR] [--destdir DIR] [--from DIR]
#
# --prefix   installation prefix, by default /usr/local
# --libdir   directory of the libraries, by default PREFIX/lib
# --destdir  directory prepended to every path, for packages
# --from     directory with libweft.so and libweft.a; by default they are built in release mode
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local libdir='' destdir='' from=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "install.sh: $1 needs a directory" >&2; exit 2; }
    case $1 in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --destdir) destdir=$2 ;;
        --from) from=$2 ;;
        *) echo "install.sh: unknown option $1; see the start of this file" >&2; exit 2 ;;
    esac
    shift 2
done
libdir=${libdir:-$prefix/lib}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../../Cargo.toml" | head -n 1)
if [ -z "$from" ]; then
    (cd "$here" && cargo build --release -p weft-capi)
    from=${CARGO_TARGET_DIR:-$here/../../../target}/release
fi
install -d "$destdir$prefix/include" "$destdir$libdir/pkgconfig"
install -m 644 "$here/include/weft.h" "$destdir$prefix/include/weft.h"
install -s -m 755 "$from/libweft.so" "$destdir$libdir/libweft.so.$version"
ln -sf "libweft.so.$version" "$destdir$libdir/libweft.so.0"
ln -sf libweft.so.0 "$destdir$libdir/libweft.so"
install -m 644 "$from/libweft.a" "$destdir$libdir/libweft.a"
strip --strip-debug "$destdir$libdir/libweft.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" "$here/weft.pc.in" \
    > "$destdir$libdir/pkgconfig/weft.pc"
echo "installed weft.h, libweft and weft.pc $version under $destdir$prefix"
