"""Directories."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._binding import fail, ffi, lib, name, text
from ._handle import Handle
from .stat import Stat, stat_from

if TYPE_CHECKING:
    from .names import Names

_DT_DIR, _DT_REG, _DT_LNK = 4, 8, 10


class DirEntry:
    """A name in a directory, with the attributes that came with it."""

    __slots__ = ("_cluster", "_lstat", "_type", "name", "path")

    def __init__(self, cluster: Names, path: str, name: str, kind: int, lstat: Stat | None) -> None:
        self._cluster = cluster
        self._type = kind
        self._lstat = lstat
        self.name = name
        """Name in the directory."""
        self.path = path
        """The directory's path, as it was given, joined with the name."""

    def __repr__(self) -> str:
        return f"<weft_fs.DirEntry {self.name!r}>"

    def __fspath__(self) -> str:
        return self.path

    def is_symlink(self) -> bool:
        """Return whether this is a symbolic link."""
        return self._type == _DT_LNK

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a directory, or a symbolic link to one."""
        return self._is(_DT_DIR, stat_module.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a regular file, or a symbolic link to one."""
        return self._is(_DT_REG, stat_module.S_ISREG, follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Return the attributes: those that came with the name, unless a link is followed."""
        if follow_symlinks and self.is_symlink():
            return self._cluster.stat(self.path)
        return self._lstat or self._cluster.lstat(self.path)

    def _is(self, kind: int, check: Any, follow_symlinks: bool) -> bool:
        if not (follow_symlinks and self.is_symlink()):
            return self._type == kind
        try:
            return bool(check(self._cluster.stat(self.path).mode))
        except FileNotFoundError:
            return False


def scan(
    cluster: Names, path: str | bytes | os.PathLike[Any], *, with_attributes: bool = True
) -> Iterator[DirEntry]:
    """Return the entries of a directory in byte order of the names, with their attributes in few requests."""
    at = text(path)
    with cluster._handle as weft:
        pointer = lib.weft_opendir(weft, name(path))
        if pointer == ffi.NULL:
            fail(at)
    return _entries(cluster, at, Handle(pointer, lib.weft_closedir, f"directory {at}"), with_attributes)


def _entries(cluster: Names, at: str, handle: Handle, with_attributes: bool) -> Iterator[DirEntry]:
    place = ffi.new("struct stat *")
    try:
        while True:
            with handle as directory:
                entry = lib.weft_readdir_stat(directory, place) if with_attributes else lib.weft_readdir(directory)
                if entry == ffi.NULL:
                    if ffi.errno != 0:
                        fail(at)
                    return
                found, kind = os.fsdecode(ffi.string(entry.name)), entry.type
            lstat = stat_from(place) if place.st_mode else None
            yield DirEntry(cluster, os.path.join(at, found), found, kind, lstat)
    finally:
        handle.close()
