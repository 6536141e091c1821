"""Hook of the wheel's build: adds libweft, its declarations, and the tag of the platform.

WEFT_LIBRARY names libweft.so; by default it is the release build of this repository.
"""

import os
import pathlib
import platform
import re
import subprocess
import tempfile

from cffi import FFI
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent / "crates/interfaces/capi/include/weft.h"

# Types of the C library that weft.h uses, on 64-bit Linux with glibc.
TYPES = """
typedef long off_t;
typedef unsigned int mode_t;
typedef unsigned int uid_t;
typedef unsigned int gid_t;
struct iovec { void *iov_base; size_t iov_len; };
struct timespec { long tv_sec; long tv_nsec; };
struct statvfs {
    unsigned long f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, f_fsid, f_flag, f_namemax;
    int f_spare[6];
};
"""
STAT = {
    "x86_64": """
struct stat {
    unsigned long st_dev, st_ino, st_nlink;
    unsigned int st_mode, st_uid, st_gid, st_pad;
    unsigned long st_rdev;
    long st_size, st_blksize, st_blocks;
    struct timespec st_atim, st_mtim, st_ctim;
    long st_reserved[3];
};
""",
    "aarch64": """
struct stat {
    unsigned long st_dev, st_ino;
    unsigned int st_mode, st_nlink, st_uid, st_gid;
    unsigned long st_rdev, st_pad1;
    long st_size;
    int st_blksize, st_pad2;
    long st_blocks;
    struct timespec st_atim, st_mtim, st_ctim;
    int st_reserved[2];
};
""",
}


def declarations(header, machine):
    """Returns the declarations of weft.h for cffi, which knows no preprocessor."""
    if machine not in STAT:
        raise SystemExit(f"weft: {machine}: no declaration of struct stat; add it to {__file__}")
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    code = re.sub(r'^#ifdef __cplusplus\n.*?^#endif\n', "", code, flags=re.DOTALL | re.MULTILINE)
    kept = [line for line in code.splitlines() if not line.startswith("#") or re.match(r"#define \w+ \d+$", line)]
    return TYPES + STAT[machine] + "\n".join(kept)


def glibc(library):
    """Returns the version of glibc that the library needs, such as (2, 34)."""
    symbols = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))


class Hook(BuildHookInterface):
    """The hook."""

    def initialize(self, version, build_data):
        """Adds files to the wheel before it is written."""
        given = os.environ.get("WEFT_LIBRARY", HERE.parent / "target/release/libweft.so")
        library = pathlib.Path(given).absolute()
        if not library.is_file():
            raise SystemExit(f"weft: {library}: no such file; build it with: cargo build --release -p weft-capi")
        self.made = tempfile.TemporaryDirectory()
        made = pathlib.Path(self.made.name)
        machine = platform.machine()
        subprocess.run(["strip", "-o", made / "libweft.so.0", library], check=True)
        ffi = FFI()
        ffi.cdef(declarations(HEADER.read_text(), machine))
        # No source: the declarations become a module in Python, for the library's binary interface.
        ffi.set_source("_declarations", None)
        ffi.emit_python_code(str(made / "_declarations.py"))
        for name in ("libweft.so.0", "_declarations.py"):
            build_data["force_include"][str(made / name)] = f"weft_fs/{name}"
        for name in ("LICENSE", "LICENSE-APACHE", "LICENSE-MIT"):
            build_data["extra_metadata"][str(HERE.parent / name)] = f"licenses/{name}"
        major, minor = glibc(library)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{major}_{minor}_{machine}"

    def finalize(self, version, build_data, artifact_path):
        """Removes the made files."""
        self.made.cleanup()
