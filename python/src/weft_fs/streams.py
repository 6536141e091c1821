"""Open files as fsspec expects them: with a buffer, and with commits for transactions."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from .errors import WeftError
from .file import File

if TYPE_CHECKING:
    from .filesystem import WeftFileSystem


class _OfFileSystem:
    """What fsspec asks of an open file beside the methods of `io`."""

    fs: WeftFileSystem
    path: str
    blocksize: int
    file: File
    """The raw file, for locks, layouts and positioned calls. Flush a buffer before writing past it."""
    target: str | None
    """Name that a commit gives to the file; None outside of transactions."""

    def _belong(self, fs: WeftFileSystem, path: str, file: File, block_len: int, target: str | None = None) -> None:
        self.fs, self.path, self.file, self.blocksize, self.target = fs, path, file, block_len, target

    @property
    def size(self) -> int:
        """Length of the file."""
        return self.file.size()

    @property
    def full_name(self) -> str:
        """The URL."""
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> dict[str, Any]:
        """Return the attributes."""
        return self.fs.info(self.path)

    def commit(self) -> None:
        """Give the file its name, at the end of a transaction."""
        self.close()  # type: ignore[attr-defined]
        if self.target is None:
            return
        draft, target = self.fs._inside(self.path), self.fs._inside(self.target)
        if "x" in self.file.mode:
            # Unlike a rename, a link does not replace a file that was created meanwhile.
            self.fs.weft.link(draft, target)
            self.fs.weft.unlink(draft)
        else:
            self.fs.weft.rename(draft, target)
        self.path, self.target = self.target, None

    def discard(self) -> None:
        """Remove what a transaction wrote."""
        if self.target is None:
            return
        try:
            self.close()  # type: ignore[attr-defined]
        except WeftError:
            pass  # the bytes are not wanted
        self.fs.weft.unlink(self.fs._inside(self.path))
        self.target = None


class Reader(_OfFileSystem, io.BufferedReader):
    """A file open for reading. Reads longer than the buffer go past it."""

    def __init__(self, fs: WeftFileSystem, path: str, file: File, block_len: int) -> None:
        super().__init__(file, block_len)
        self._belong(fs, path, file, block_len)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise TypeError(f"weft: {self.path}: a closed file cannot be pickled")
        return _reopen, (self.fs, self.path, self.mode, self.blocksize, self.tell())


class Writer(_OfFileSystem, io.BufferedWriter):
    """A file open for writing. Writes longer than the buffer go past it."""

    def __init__(self, fs: WeftFileSystem, path: str, file: File, block_len: int, target: str | None) -> None:
        super().__init__(file, block_len)
        self._belong(fs, path, file, block_len, target)


class Updater(_OfFileSystem, io.BufferedRandom):
    """A file open for reading and writing."""

    def __init__(self, fs: WeftFileSystem, path: str, file: File, block_len: int, target: str | None) -> None:
        super().__init__(file, block_len)
        self._belong(fs, path, file, block_len, target)


class Unbuffered(_OfFileSystem, io.RawIOBase):
    """A file without a buffer."""

    def __init__(self, fs: WeftFileSystem, path: str, file: File, target: str | None) -> None:
        super().__init__()
        self._belong(fs, path, file, 0, target)
        self.mode = file.mode
        self.name = file.name

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed or self.file.writable():
            raise TypeError(f"weft: {self.path}: only files that are open for reading alone can be pickled")
        return _reopen, (self.fs, self.path, self.mode, 0, self.tell())

    def readable(self) -> bool:
        return self.file.readable()

    def writable(self) -> bool:
        return self.file.writable()

    def seekable(self) -> bool:
        return self.file.seekable()

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        return self.file.readinto(buffer)

    def read(self, size: int | None = -1) -> bytes:
        return self.file.read(size)

    def readall(self) -> bytes:
        return self.file.readall()

    def readline(self, size: int | None = -1) -> bytes:
        return self.file.readline(size)

    def write(self, data: Any) -> int:
        return self.file.write(data)

    def truncate(self, size: int | None = None) -> int:
        return self.file.truncate(size)

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self.file.close()


def _reopen(fs: WeftFileSystem, path: str, mode: str, block_len: int, position: int) -> Any:
    file = fs.open(path, mode, block_size=block_len)
    file.seek(position)
    return file
