"""Byte-range locks."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .file import File


@dataclass(frozen=True)
class LockInfo:
    """A conflicting lock."""

    exclusive: bool
    """Whether the lock is exclusive."""
    pid: int | None
    """Process id on the holder's node; None: unknown."""
    start: int
    """First byte."""
    length: int
    """Number of bytes; 0: to the end of the file, however long."""


class Lock:
    """A lock that is held. `with` releases it at the end of the block."""

    def __init__(self, file: File, start: int, length: int) -> None:
        self.file = file
        self.start = start
        self.length = length
        self._is_held = True

    def release(self) -> None:
        """Release the range. Later calls do nothing, and neither do calls after the file was closed."""
        if self._is_held:
            self._is_held = False
            if not self.file.closed:
                self.file.unlock(self.start, self.length)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
