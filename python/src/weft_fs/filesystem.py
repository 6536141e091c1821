"""Weft for fsspec: URLs such as weft:///run/out."""

from __future__ import annotations

import errno
import os
import posixpath
import stat as stat_module
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from glob import has_magic
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import stringify_path

from .cached import CachedFile
from .cluster import Cluster
from .directory import DirEntry
from .errors import error
from .expansion import Expanding
from .file import File
from .layout import LayoutLike
from .stat import Stat
from .streams import Reader, Unbuffered, Updater, Writer

#: Bytes of the buffer of an open file. Longer reads and writes go past it, without a copy.
BLOCK_LEN = 256 * 1024
#: Bytes that a copy holds in memory.
COPY_LEN = 8 * 1024 * 1024
#: Caches that are replaced by the buffer of a file.
_BUFFERED = (None, "readahead")


class WeftFileSystem(Expanding):
    """Files of a cluster of Weft.

    `weft:///run/out` is the file that programs know as /weft/run/out; so are `/run/out` and `run/out`, and the names that
    calls return begin as the given ones do. Options:

    - `cluster`: the cluster file; by default the cluster that `weft_fs.Cluster()` connects to;
    - `auto_mkdir`: whether writes create missing directories (by default true);
    - `layout`, `compression`: those of new files; a layout may be a dictionary with the fields of a `LayoutSpec`.
    """

    protocol = "weft"
    root_marker = "/"
    local_file = False

    def __init__(
        self,
        cluster: str | os.PathLike[str] | None = None,
        auto_mkdir: bool = True,
        layout: LayoutLike | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.auto_mkdir = auto_mkdir
        self.layout = layout
        self.compression = compression
        self.weft = Cluster(cluster)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        found = stringify_path(path)
        for prefix in ("weft://", "weft:"):
            if found.startswith(prefix):
                return "/" + found[len(prefix) :].strip("/")
        # Callers such as pyarrow compare the names that they get with those that they asked about, so a name keeps its
        # slash, or stays without one.
        return "/" + found.strip("/") if found.startswith("/") else found.strip("/")

    @classmethod
    def _parent(cls, path: str) -> str:
        return posixpath.dirname(cls._strip_protocol(path)) or cls.root_marker

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        return f"weft:///{self._strip_protocol(name).lstrip('/')}"

    @property
    def fsid(self) -> str:
        """Identity of the file system."""
        return f"weft_{self.weft.info.name}"

    def _inside(self, path: str) -> str:
        """Return the path below the root. Without its slash, a name equal to the mount prefix is kept."""
        stripped: str = self._strip_protocol(path)
        return stripped.lstrip("/") or "/"

    # ---------------------------------------------------------------- names

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a directory; a file is listed as itself."""
        stripped = self._strip_protocol(path)
        try:
            entries = list(self.weft.scandir(self._inside(path)))
        except NotADirectoryError:
            info = self.info(path)
            return [info] if detail else [info["name"]]
        above = stripped if stripped in ("", "/") else f"{stripped}/"
        if not detail:
            return [f"{above}{entry.name}" for entry in entries]
        found = (self._entry_info(f"{above}{entry.name}", entry) for entry in entries)
        return [info for info in found if info is not None]

    def _entry_info(self, path: str, entry: DirEntry) -> dict[str, Any] | None:
        try:
            return self._info(path, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            return None  # removed meanwhile

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return the attributes of a file or directory; of a symbolic link, those of its target."""
        return self._info(self._strip_protocol(path), self.weft.lstat(self._inside(path)))

    def _info(self, path: str, found: Stat) -> dict[str, Any]:
        is_link = found.is_symlink
        destination = None
        if is_link:
            destination = self.weft.readlink(self._inside(path))
            try:
                found = self.weft.stat(self._inside(path))
            except (FileNotFoundError, NotADirectoryError):
                pass  # leads nowhere
        kind = {stat_module.S_IFDIR: "directory", stat_module.S_IFREG: "file", stat_module.S_IFLNK: "link"}
        info = {
            "name": path,
            "size": 0 if found.is_dir else found.size,
            "type": kind.get(stat_module.S_IFMT(found.mode), "other"),
            "created": found.ctime,
            "mtime": found.mtime,
            "mode": found.mode,
            "uid": found.uid,
            "gid": found.gid,
            "ino": found.ino,
            "nlink": found.nlink,
            "islink": is_link,
        }
        if destination is not None:
            info["destination"] = destination
        return info

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a path exists. A server that does not answer is an error, not an absence."""
        return self.weft.exists(self._inside(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a path exists, as a symbolic link that leads nowhere does."""
        try:
            self.weft.lstat(self._inside(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Return whether a path is a directory."""
        return self.weft.is_dir(self._inside(path))

    def isfile(self, path: str) -> bool:
        """Return whether a path is a regular file."""
        return self.weft.is_file(self._inside(path))

    def islink(self, path: str) -> bool:
        """Return whether a path is a symbolic link."""
        try:
            return self.weft.lstat(self._inside(path)).is_symlink
        except (FileNotFoundError, NotADirectoryError):
            return False

    def created(self, path: str) -> datetime:
        """Return the time of the last change of the attributes: Weft keeps no time of creation."""
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        """Return the time of the last modification."""
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Create a directory, by default with those above it."""
        if create_parents:
            self.makedirs(path, exist_ok=False)
        else:
            self.weft.mkdir(self._inside(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and those above it."""
        self.weft.makedirs(self._inside(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.weft.rmdir(self._inside(path))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self.weft.unlink(self._inside(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with `recursive` directories. Symbolic links are removed, not followed."""
        is_whole = recursive and maxdepth is None
        found = self.expand_path(path, recursive=recursive and not is_whole, maxdepth=maxdepth)
        # Names below a directory come after it.
        for one in reversed(found):
            inside = self._inside(one)
            if not self.weft.lstat(inside).is_dir:
                self.weft.unlink(inside)
            elif is_whole:
                self.weft.rmtree(inside)
            else:
                self.weft.rmdir(inside)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Rename a file or directory, without moving bytes."""
        with_parent = self._with_parent(path2)
        with_parent(lambda: self.weft.rename(self._inside(path1), self._inside(path2)))

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Rename a file or directory, without moving bytes. An existing directory gets it inside."""
        if isinstance(path1, os.PathLike):
            path1 = os.fspath(path1)
        is_pattern = not isinstance(path1, str) or (has_magic(path1) and not self.lexists(path1))
        if is_pattern or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(target):
            target = f"{target.rstrip('/')}/{posixpath.basename(source)}"
        self.mv_file(source, target)

    def link(self, src: str, dst: str, **kwargs: Any) -> None:
        """Create a hard link."""
        self.weft.link(self._inside(src), self._inside(dst))

    def symlink(self, src: str, dst: str, **kwargs: Any) -> None:
        """Create the symbolic link `dst` to `src`."""
        # Relative to the link, so that the link holds under every mount prefix.
        target = posixpath.relpath(self._inside(src), posixpath.dirname(self._inside(dst)) or ".")
        self.weft.symlink(target, self._inside(dst))

    def chmod(self, path: str, mode: int) -> None:
        """Change the permissions."""
        self.weft.chmod(self._inside(path), mode)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Create an empty file, or cut an existing one, or with `truncate=False` set its times to now."""
        if truncate or not self.exists(path):
            self._raw(path, "wb" if truncate else "ab").close()
        else:
            self.weft.utime(self._inside(path))

    # ---------------------------------------------------------------- bytes

    def _with_parent(self, path: str) -> Any:
        """Return a function that makes a call, and again after it created missing directories above `path`."""

        def attempt(call: Any) -> Any:
            try:
                return call()
            except FileNotFoundError:
                if not self.auto_mkdir:
                    raise
                # Another thread may have created the directory since: that is no reason to give up.
                self.makedirs(self._parent(path), exist_ok=True)
                return call()

        return attempt

    def _raw(self, path: str, mode: str, **options: Any) -> File:
        options.setdefault("layout", self.layout)
        options.setdefault("compression", self.compression)

        def open_file() -> File:
            return File(self.weft, self._inside(path), mode, **options)

        return open_file() if "r" in mode else self._with_parent(path)(open_file)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str | None = None,
        layout: LayoutLike | None = None,
        size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file with a buffer of `block_size` bytes, or without one for 0 or `cache_type="none"`.

        The caches of fsspec are used if `cache_type` names another than "readahead".
        """
        buffer_len = BLOCK_LEN if block_size is None or isinstance(block_size, str) else block_size
        if mode == "rb" and cache_type not in (*_BUFFERED, "none"):
            return CachedFile(
                self, path, mode, buffer_len, cache_type=cache_type, cache_options=cache_options, size=size
            )
        options: dict[str, Any] = {} if layout is None else {"layout": layout}
        target = None
        if not autocommit and not mode.startswith("r"):
            target = path
            path = self._draft(path, mode)
        raw = self._raw(path, mode, **options)
        if mode == "rb":
            try:
                raw.pread(0, 0)  # without a message; an error for a directory
            except OSError:
                raw.close()
                raise
        if buffer_len == 0 or cache_type == "none":
            return Unbuffered(self, path, raw, target)
        if raw.readable() and raw.writable():
            return Updater(self, path, raw, buffer_len, target)
        if raw.writable():
            return Writer(self, path, raw, buffer_len, target)
        return Reader(self, path, raw, buffer_len)

    def _draft(self, path: str, mode: str) -> str:
        """Return the name under which a transaction writes a file until it is committed."""
        if "a" in mode:
            raise ValueError(f"weft: {path}: appending in a transaction is not supported; write the whole file")
        if "x" in mode and self.exists(path):
            raise FileExistsError(f"weft: {path}: the file exists")
        above, last = posixpath.split(self._strip_protocol(path))
        return posixpath.join(above, f".{last[:200]}.{uuid.uuid4().hex}.draft")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or of a range of it."""
        with self._raw(path, "rb") as file:
            return self._cat_range(file, start, end)

    def _cat_range(self, file: File, start: int | None, end: int | None) -> bytes:
        if start is not None and end is not None and 0 <= start <= end:
            return file.pread(end - start, start)  # needs no size
        begin, stop = _range(_file_len(file), start, end)
        return file.pread(stop - begin, begin)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Return a range of each path. A file is opened once for all its ranges."""
        if not isinstance(paths, list):
            raise TypeError("weft: cat_ranges: paths is no list")
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        wanted: dict[str, list[tuple[int, int | None, int | None]]] = {}
        out: list[Any] = [None] * len(paths)
        for at, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
            wanted.setdefault(path, []).append((at, start, end))
        for path, ranges in wanted.items():
            try:
                with self._raw(path, "rb") as file:
                    for at, start, end in ranges:
                        out[at] = self._cat_range(file, start, end)
            except OSError as failure:
                if on_error != "return":
                    raise
                for at, _, _ in ranges:
                    out[at] = failure if out[at] is None else out[at]
        return out

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file from any buffer, without a copy in Python."""
        with self.open(path, "xb" if mode == "create" else "wb", block_size=0) as file:
            file.write(value)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file, or create a directory for one."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self._raw(path1, "rb") as source:
            if self.exists(path2) and self.weft.stat(self._inside(path2)).ino == source.stat().ino:
                return  # opening the target for writing would cut the source
            with self.open(path2, "wb", block_size=0) as target:
                _copy(source, target)

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Copy a file to the local file system, or create a directory for one."""
        if not hasattr(lpath, "write") and outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self._raw(rpath, "rb") as source:
            callback.set_size(source.size())
            given = outfile if outfile is not None else lpath if hasattr(lpath, "write") else None
            if given is not None:
                _copy(source, given, callback)
                return
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            with open(lpath, "wb", buffering=0) as target:
                _copy(source, target, callback)

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copy a file of the local file system, or create a directory for one."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", buffering=0) as source:
            callback.set_size(os.fstat(source.fileno()).st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb", block_size=0) as target:
                _copy(source, target, callback)

    def ukey(self, path: str) -> str:
        """Return a text that changes when the file does."""
        info = self.info(path)
        return f"{info['ino']}-{info['size']}-{info['mtime']}"

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        raise NotImplementedError("weft: files of Weft have no URLs of HTTP")


def _range(length: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return a range of a file as slices have it."""
    begin, stop, _ = slice(start, end).indices(length)
    return begin, max(stop, begin)


def _file_len(file: File) -> int:
    """Return the length of a file; a directory has none."""
    found = file.stat()
    if found.is_dir:
        raise error(errno.EISDIR, f"weft: {file.name}: is a directory", file.name)
    return found.size


def _copy(source: Any, target: Any, callback: Any = DEFAULT_CALLBACK) -> None:
    """Copy the rest of a raw file, through one buffer."""
    buffer = memoryview(bytearray(COPY_LEN))
    while read := source.readinto(buffer):
        done = 0
        while done < read:
            done += target.write(buffer[done:read])
        callback.relative_update(read)
