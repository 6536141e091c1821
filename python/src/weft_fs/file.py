"""Open files."""

from __future__ import annotations

import io
import os
import stat as stat_module
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._binding import COUNT_MAX, check, destination, fail, ffi, lib, name, read_bytes, source, text
from ._handle import Handle
from .errors import WeftBlockingIOError
from .layout import Layout, LayoutLike, spec_to
from .locks import Lock, LockInfo
from .stat import Stat, stat_from

if TYPE_CHECKING:
    from .cluster import Cluster

#: Bytes that `readline` asks for at once.
_LINE_CHUNK = 8192
#: Time for which one call waits for a lock, so that a signal such as Ctrl-C is noticed.
_LOCK_SLICE_MS = 1000

_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_CREAT | os.O_TRUNC,
    "x": os.O_CREAT | os.O_EXCL,
    "a": os.O_CREAT | os.O_APPEND,
}


def flags_of(mode: str) -> int:
    """Return the flags of open(2) for a binary mode such as "rb" or "r+b"."""
    kinds = [letter for letter in mode if letter in _FLAGS]
    if len(kinds) != 1 or set(mode) - set("rwxab+") or len(set(mode)) != len(mode):
        raise ValueError(f"weft: mode {mode!r}: give one of r, w, x and a, with or without b and +")
    if "+" in mode:
        access = os.O_RDWR
    else:
        access = os.O_RDONLY if kinds[0] == "r" else os.O_WRONLY
    return access | _FLAGS[kinds[0]]


class File(io.RawIOBase):
    """An open file of Weft: a raw binary file without a buffer.

    `readinto` and `write` move bytes between the servers and the given buffer without a copy in Python, and release the
    GIL. Threads may share a file by `pread`, `pwrite` and their variants, which leave the position alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str | bytes | os.PathLike[Any],
        mode: str = "rb",
        *,
        permissions: int = 0o666,
        layout: LayoutLike | None = None,
        compression: str | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__()
        flags = flags_of(mode) | (os.O_DSYNC if sync else 0)
        self.cluster = cluster
        self.name = text(path)
        self.mode = mode if "b" in mode else mode + "b"
        self._may_read = flags & os.O_ACCMODE != os.O_WRONLY
        self._may_write = flags & os.O_ACCMODE != os.O_RDONLY
        self._appends = bool(flags & os.O_APPEND)
        self._position = 0
        spec, kept = spec_to(layout)
        setting = ffi.NULL if compression is None else compression.encode()
        with cluster._handle as weft:
            pointer = lib.weft_open_compressed(weft, name(path), flags, permissions, spec, setting)
            if pointer == ffi.NULL:
                fail(self.name)
        del kept
        self._handle = Handle(pointer, lib.weft_close, f"file {self.name}")
        if self._appends:
            self._position = self.size()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<weft_fs.File{state} name={self.name!r} mode={self.mode!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed or self._may_write:
            raise TypeError(f"weft: {self.name}: only files that are open for reading alone can be pickled")
        return _reopen, (self.cluster, self.name, self.mode, self._position)

    # ---------------------------------------------------------------- positioned calls

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`: fewer only at the end of the file."""
        if length < 0:
            raise ValueError(f"weft: {self.name}: a length of {length} bytes is negative")
        self._check_readable()
        # A length far beyond the end must not reserve memory.
        length = min(length, max(self.size() - offset, 0)) if length > _LINE_CHUNK else length
        return read_bytes(length, lambda place, count: self._read_to(place, count, offset))

    def pread_into(self, buffer: Any, offset: int) -> int:
        """Fill a writable buffer from `offset`. Return the number of bytes: fewer only at the end of the file."""
        self._check_readable()
        with destination(buffer) as place:
            return self._read_to(place, len(place), offset)

    def preadv(self, buffers: Sequence[Any], offset: int) -> int:
        """Fill several buffers in order, with one request. Return the number of bytes."""
        self._check_readable()
        return self._vectored(lib.weft_preadv, [destination(buffer) for buffer in buffers], offset)

    def pwrite(self, data: Any, offset: int) -> int:
        """Write all bytes of a buffer at `offset`. Return their number.

        A file opened for appending ignores the offset, as on Linux.
        """
        self._check_writable()
        with source(data) as place:
            done = 0
            while True:
                count = min(len(place) - done, COUNT_MAX)
                with self._handle as file:
                    done += check(lib.weft_pwrite(file, place + done, count, offset + done), self.name)
                if done == len(place):
                    return done

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        """Write several buffers in order at `offset`, with one request. Return the number of bytes."""
        self._check_writable()
        return self._vectored(lib.weft_pwritev, [source(buffer) for buffer in buffers], offset)

    def append(self, data: Any) -> int:
        """Write at the current end of the file. Return the offset. Appends of different nodes do not overlap."""
        self._check_writable()
        with source(data) as place:
            if len(place) > COUNT_MAX:
                raise ValueError(f"weft: {self.name}: one append has at most {COUNT_MAX} bytes; divide it")
            offset = ffi.new("off_t *")
            with self._handle as file:
                check(lib.weft_append(file, place, len(place), offset), self.name)
            return int(offset[0])

    def _read_to(self, place: Any, length: int, offset: int) -> int:
        done = 0
        while True:
            count = min(length - done, COUNT_MAX)
            with self._handle as file:
                read = check(lib.weft_pread(file, place + done, count, offset + done), self.name)
            done += read
            if read == 0 or done == length:
                return done

    def _vectored(self, call: Any, places: list[Any], offset: int) -> int:
        if sum(len(place) for place in places) > COUNT_MAX:
            raise ValueError(f"weft: {self.name}: the buffers of one call have at most {COUNT_MAX} bytes; divide them")
        vectors = ffi.new("struct iovec[]", [(place, len(place)) for place in places])
        with self._handle as file:
            return check(call(file, vectors, len(places), offset), self.name)

    # ---------------------------------------------------------------- the position

    def readable(self) -> bool:
        self._check_open()
        return self._may_read

    def writable(self) -> bool:
        self._check_open()
        return self._may_write

    def seekable(self) -> bool:
        self._check_open()
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self.size() + offset
        else:
            raise ValueError(f"weft: {self.name}: whence {whence} is none of 0, 1 and 2")
        if position < 0:
            raise ValueError(f"weft: {self.name}: position {position} is before the start")
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Fill a writable buffer, without a copy in Python. Return the number of bytes: fewer only at the end."""
        read = self.pread_into(buffer, self._position)
        self._position += read
        return read

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes, or the rest of the file."""
        if size is None or size < 0:
            return self.readall()
        data = self.pread(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Read the rest of the file."""
        self._check_readable()
        pieces = []
        # A file that grows meanwhile is read to its end.
        while rest := self.size() - self._position:
            if rest < 0:
                break
            data = self.pread(rest, self._position)
            if not data:
                break
            self._position += len(data)
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readline(self, size: int | None = -1) -> bytes:
        """Read a line. Requests have several kilobytes, not one byte as in RawIOBase."""
        limit = -1 if size is None else size
        line = bytearray()
        while limit < 0 or len(line) < limit:
            wanted = _LINE_CHUNK if limit < 0 else min(_LINE_CHUNK, limit - len(line))
            chunk = self.pread(wanted, self._position)
            end = chunk.find(b"\n") + 1
            line += chunk[:end] if end else chunk
            self._position += end or len(chunk)
            if end or not chunk:
                break
        return bytes(line)

    def write(self, data: Any) -> int:
        """Write all bytes of any contiguous buffer, such as a memoryview, without a copy in Python."""
        if self._appends:
            with memoryview(data) as view:
                length = view.nbytes
            self._position = self.append(data) + length
            return length
        written = self.pwrite(data, self._position)
        self._position += written
        return written

    def truncate(self, size: int | None = None) -> int:
        """Cut the file, or extend it with a hole, to `size` bytes (the position by default)."""
        self._check_writable()
        size = self._position if size is None else size
        with self._handle as file:
            check(lib.weft_ftruncate(file, size), self.name)
        return size

    # ---------------------------------------------------------------- the file

    def size(self) -> int:
        """Return the length in bytes, including writes of other nodes."""
        with self._handle as file:
            return check(lib.weft_size(file), self.name)

    def stat(self) -> Stat:
        """Return the attributes."""
        place = ffi.new("struct stat *")
        with self._handle as file:
            check(lib.weft_fstat(file, place), self.name)
        return stat_from(place)

    def fsync(self) -> None:
        """Make all writes to the file durable, those of other nodes included."""
        with self._handle as file:
            check(lib.weft_fsync(file), self.name)

    @property
    def layout(self) -> Layout:
        """The layout, found by name: after a rename of the file, ask the cluster with the new name."""
        return self.cluster.layout(self.name)

    @property
    def is_directory(self) -> bool:
        """Whether a directory was opened."""
        return stat_module.S_ISDIR(self.stat().mode)

    # ---------------------------------------------------------------- locks

    def lock(self, start: int = 0, length: int = 0, *, exclusive: bool = True, timeout: float | None = None) -> Lock:
        """Lock `length` bytes from `start` (0: to the end, however long), and return a context manager that unlocks.

        `timeout` is in seconds; None waits forever, 0 not at all. BlockingIOError: another owner holds the lock.
        """
        kind = lib.WEFT_LOCK_EXCLUSIVE if exclusive else lib.WEFT_LOCK_SHARED
        left_ms = None if timeout is None else max(int(timeout * 1000), 0)
        while True:
            wait_ms = _LOCK_SLICE_MS if left_ms is None else min(left_ms, _LOCK_SLICE_MS)
            try:
                with self._handle as file:
                    check(lib.weft_lock(file, kind, start, length, wait_ms), self.name)
                return Lock(self, start, length)
            except WeftBlockingIOError:
                if left_ms is not None:
                    left_ms -= wait_ms
                    if left_ms <= 0:
                        raise

    def unlock(self, start: int = 0, length: int = 0) -> None:
        """Release the locks of this open file in the range."""
        with self._handle as file:
            check(lib.weft_unlock(file, start, length), self.name)

    def test_lock(self, start: int = 0, length: int = 0, *, exclusive: bool = True) -> LockInfo | None:
        """Return a lock of another owner that conflicts, or None."""
        kind = lib.WEFT_LOCK_EXCLUSIVE if exclusive else lib.WEFT_LOCK_SHARED
        info = ffi.new("weft_lock_info_t *")
        with self._handle as file:
            if check(lib.weft_test_lock(file, kind, start, length, info), self.name) == 0:
                return None
        return LockInfo(info.kind == lib.WEFT_LOCK_EXCLUSIVE, info.pid or None, info.start, info.len)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Close the file and release its locks. It does not sync; see `fsync`."""
        if not self.closed:
            try:
                super().close()
            finally:
                handle = getattr(self, "_handle", None)
                if handle is not None:
                    handle.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"weft: file {self.name} is closed")

    def _check_readable(self) -> None:
        self._check_open()
        if not self._may_read:
            raise io.UnsupportedOperation(f"weft: {self.name}: the file is not open for reading")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._may_write:
            raise io.UnsupportedOperation(f"weft: {self.name}: the file is not open for writing")


def _reopen(cluster: Cluster, path: str, mode: str, position: int) -> File:
    file = File(cluster, path, mode)
    file.seek(position)
    return file
