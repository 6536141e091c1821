"""Names, attributes and layouts by path, after the functions of `os`."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._binding import check, fail, ffi, lib, name, text
from .directory import DirEntry, scan
from .layout import Layout, LayoutLike, columns_from, spec_to
from .stat import Stat, stat_from

if TYPE_CHECKING:
    from ._handle import Handle

Path = str | bytes | os.PathLike[Any]

#: Longest target of a symbolic link.
_LINK_LEN_MAX = 4096
_KEEP = 0xFFFFFFFF


class Names:
    """Calls of a cluster that take paths.

    Paths are relative to the root of the file system, with or without a leading slash. The mount prefix ("/weft" by
    default) is removed: "/weft/run/out", "/run/out" and "run/out" name the same file.
    """

    _handle: Handle

    def _call(self, function: Any, path: Path, *arguments: Any) -> int:
        with self._handle as weft:
            return check(function(weft, name(path), *arguments), text(path))

    # ---------------------------------------------------------------- attributes

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        """Return the attributes."""
        place = ffi.new("struct stat *")
        self._call(lib.weft_stat if follow_symlinks else lib.weft_lstat, path, place)
        return stat_from(place)

    def lstat(self, path: Path) -> Stat:
        """Return the attributes; those of the link, if `path` is a symbolic link."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        """Return whether `path` exists. A server that does not answer is an error, not an absence."""
        return self._stat_or_none(path) is not None

    def is_dir(self, path: Path) -> bool:
        """Return whether `path` is a directory, or a symbolic link to one."""
        found = self._stat_or_none(path)
        return found is not None and found.is_dir

    def is_file(self, path: Path) -> bool:
        """Return whether `path` is a regular file, or a symbolic link to one."""
        found = self._stat_or_none(path)
        return found is not None and found.is_file

    def _stat_or_none(self, path: Path) -> Stat | None:
        try:
            return self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def access(self, path: Path, mode: int = os.F_OK) -> bool:
        """Return whether the caller may do what `mode` says: `os.F_OK`, or any of `os.R_OK`, `os.W_OK`, `os.X_OK`."""
        try:
            self._call(lib.weft_access, path, mode)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False
        return True

    def chmod(self, path: Path, mode: int) -> None:
        """Change the permissions."""
        self._call(lib.weft_chmod, path, mode)

    def chown(self, path: Path, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True) -> None:
        """Change owner and group; -1 keeps the current one."""
        function = lib.weft_chown if follow_symlinks else lib.weft_lchown
        self._call(function, path, uid & _KEEP, gid & _KEEP)

    def utime(self, path: Path, ns: tuple[int, int] | None = None, *, follow_symlinks: bool = True) -> None:
        """Set the times of last access and modification in nanoseconds since 1970; None: now."""
        times = ffi.NULL
        if ns is not None:
            times = ffi.new("struct timespec[2]", [divmod(time, 1_000_000_000) for time in ns])
        self._call(lib.weft_utimens, path, times, int(follow_symlinks))

    def truncate(self, path: Path, length: int) -> None:
        """Cut a file, or extend it with a hole."""
        self._call(lib.weft_truncate, path, length)

    # ---------------------------------------------------------------- names

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Create a directory."""
        self._call(lib.weft_mkdir, path, mode)

    def makedirs(self, path: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        """Create a directory and those above it that are missing."""
        at = text(path)
        try:
            self.mkdir(at, mode)
        except FileNotFoundError:
            above = posixpath.dirname(at.rstrip("/"))
            if not above or above == at:
                raise
            self.makedirs(above, exist_ok=True)
            self.makedirs(at, mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir(at):
                raise

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        self._call(lib.weft_rmdir, path)

    def unlink(self, path: Path) -> None:
        """Remove a file or a symbolic link."""
        self._call(lib.weft_unlink, path)

    remove = unlink

    def rmtree(self, path: Path) -> None:
        """Remove a directory with all that is in it. Symbolic links are removed, not followed."""
        if self.lstat(path).ino == self.lstat("/").ino:
            raise ValueError(f"weft: rmtree: {text(path)} is the root, which is not removed; name a directory below it")
        self._remove_below(path)

    def _remove_below(self, path: Path) -> None:
        # Names are collected first, because removals change the directory.
        for entry in list(scan(self, path, with_attributes=False)):
            if entry.is_dir(follow_symlinks=False):
                self._remove_below(entry.path)
            else:
                self.unlink(entry.path)
        self.rmdir(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory. An existing target is replaced, as by rename(2)."""
        self._call(lib.weft_rename, source, name(target))

    replace = rename

    def link(self, source: Path, target: Path) -> None:
        """Create the hard link `target` to `source`."""
        self._call(lib.weft_link, source, name(target))

    def symlink(self, target: Path, path: Path) -> None:
        """Create the symbolic link `path` with the text `target`."""
        with self._handle as weft:
            check(lib.weft_symlink(weft, name(target), name(path)), text(path))

    def readlink(self, path: Path) -> str:
        """Return the text of a symbolic link."""
        place = ffi.new("char[]", _LINK_LEN_MAX)
        length = self._call(lib.weft_readlink, path, place, _LINK_LEN_MAX)
        return os.fsdecode(bytes(ffi.buffer(place, length)))

    # ---------------------------------------------------------------- directories

    def scandir(self, path: Path = "/") -> Iterator[DirEntry]:
        """Return the entries of a directory with their attributes, in byte order of the names."""
        return scan(self, path)

    def listdir(self, path: Path = "/") -> list[str]:
        """Return the names in a directory, in byte order."""
        return [entry.name for entry in scan(self, path, with_attributes=False)]

    def walk(self, path: Path = "/", *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        """Walk a tree like `os.walk`. Symbolic links are not followed; errors are raised."""
        # A name below the root may equal the mount prefix, which is not removed from a path without a leading slash.
        at = text(path)
        entries = list(scan(self, at, with_attributes=False))
        directories = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        others = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        names = [entry.name for entry in directories]
        if topdown:
            yield at, names, others
            # The caller may have removed names, to leave their trees out.
            directories = [entry for entry in directories if entry.name in names]
        for entry in directories:
            below = entry.name if at.strip("/") == "" else entry.path
            yield from self.walk(below, topdown=topdown)
        if not topdown:
            yield at, names, others

    # ---------------------------------------------------------------- extended attributes

    def getxattr(self, path: Path, attribute: str) -> bytes:
        """Return the value of an extended attribute."""
        return self._value(lib.weft_getxattr, path, attribute.encode())

    def setxattr(self, path: Path, attribute: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute. `flags` is 0, `os.XATTR_CREATE` or `os.XATTR_REPLACE`."""
        self._call(lib.weft_setxattr, path, attribute.encode(), value, len(value), flags)

    def listxattr(self, path: Path) -> list[str]:
        """Return the names of the extended attributes."""
        return [found.decode() for found in self._value(lib.weft_listxattr, path).split(b"\0") if found]

    def removexattr(self, path: Path, attribute: str) -> None:
        """Remove an extended attribute."""
        self._call(lib.weft_removexattr, path, attribute.encode())

    def _value(self, function: Any, path: Path, *arguments: bytes) -> bytes:
        while True:
            size = self._call(function, path, *arguments, ffi.NULL, 0)
            place = ffi.new("char[]", max(size, 1))
            with self._handle as weft:
                length = function(weft, name(path), *arguments, place, max(size, 1))
                if length >= 0:
                    return bytes(ffi.buffer(place, length))
                # The value may have grown since.
                if ffi.errno != errno.ERANGE:
                    fail(text(path))

    # ---------------------------------------------------------------- layouts

    def layout(self, path: Path) -> Layout:
        """Return the layout of a file. A directory has none: its layout has no columns."""
        count = 64
        while True:
            columns = ffi.new("weft_column_t[]", count)
            found = self._call(lib.weft_get_layout, path, columns, count)
            if found <= count:
                return Layout(columns_from(columns, found))
            count = found

    def set_layout(self, path: Path, spec: LayoutLike) -> None:
        """Set the layout of an empty file, or the default for new files in a directory."""
        place, _kept = spec_to(spec)
        self._call(lib.weft_set_layout, path, place)

    def set_compression(self, path: Path, setting: str | None) -> None:
        """Set the compression of an empty file, or of new files in a directory, such as "lz4"; None removes it."""
        self._call(lib.weft_set_compression, path, ffi.NULL if setting is None else setting.encode())
