"""Attributes of files and space of the cluster."""

from __future__ import annotations

import stat as stat_module
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stat:
    """Attributes of a file, as of stat(2). `st_size` and the like also work, as with `os.stat_result`."""

    mode: int
    ino: int
    dev: int
    nlink: int
    uid: int
    gid: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int

    @property
    def atime(self) -> float:
        """Time of the last access in seconds since 1970."""
        return self.atime_ns / 1e9

    @property
    def mtime(self) -> float:
        """Time of the last modification in seconds since 1970."""
        return self.mtime_ns / 1e9

    @property
    def ctime(self) -> float:
        """Time of the last change of the attributes in seconds since 1970."""
        return self.ctime_ns / 1e9

    @property
    def is_dir(self) -> bool:
        """Whether this is a directory."""
        return stat_module.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether this is a regular file."""
        return stat_module.S_ISREG(self.mode)

    @property
    def is_symlink(self) -> bool:
        """Whether this is a symbolic link."""
        return stat_module.S_ISLNK(self.mode)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("st_"):
            return getattr(self, name[3:])
        raise AttributeError(name)


@dataclass(frozen=True)
class Space:
    """Space on all reachable targets, in bytes, and inodes."""

    total: int
    free: int
    inodes: int
    inodes_free: int

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.total - self.free


def stat_from(place: Any) -> Stat:
    """Return a `struct stat` as an object."""

    def nanoseconds(time: Any) -> int:
        return int(time.tv_sec) * 1_000_000_000 + int(time.tv_nsec)

    return Stat(
        mode=place.st_mode,
        ino=place.st_ino,
        dev=place.st_dev,
        nlink=place.st_nlink,
        uid=place.st_uid,
        gid=place.st_gid,
        size=place.st_size,
        blocks=place.st_blocks,
        atime_ns=nanoseconds(place.st_atim),
        mtime_ns=nanoseconds(place.st_mtim),
        ctime_ns=nanoseconds(place.st_ctim),
    )


def space_from(place: Any) -> Space:
    """Return a `struct statvfs` as an object."""
    return Space(
        total=place.f_blocks * place.f_frsize,
        free=place.f_bavail * place.f_frsize,
        inodes=place.f_files,
        inodes_free=place.f_ffree,
    )
