"""Files with a cache of fsspec, for users who name one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from .file import File

if TYPE_CHECKING:
    from .filesystem import WeftFileSystem


class CachedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file open for reading with a cache of fsspec, such as "bytes", "blockcache" or "all"."""

    def __init__(self, fs: WeftFileSystem, path: str, mode: str, block_len: int, **options: Any) -> None:
        self._file: File = fs._raw(path, mode)
        if options.get("size") is None:
            options["size"] = self._file.size()
        super().__init__(fs, path, mode, block_size=block_len, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._file.pread(end - start, start)

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._file.close()
