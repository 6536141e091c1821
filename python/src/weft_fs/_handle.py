"""Pointers of the library that threads share and that a close may release while a call runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ._binding import check

_lock = threading.Lock()
_forks = 0


def _after_fork_in_child() -> None:
    global _lock, _forks
    # Another thread of the parent may have held the lock. The calls of its threads do not run here.
    _lock = threading.Lock()
    _forks += 1


os.register_at_fork(after_in_child=_after_fork_in_child)


class Handle:
    """Pointer of the library. `with handle as pointer` keeps it valid: a close in another thread waits for the end."""

    __slots__ = ("_forks", "_pointer", "_release", "_users", "_what", "is_closed")

    def __init__(self, pointer: Any, release: Callable[[Any], int], what: str) -> None:
        self._pointer = pointer
        self._release = release
        self._what = what
        self._users = 0
        self._forks = _forks
        self.is_closed = False

    def __enter__(self) -> Any:
        with _lock:
            if self.is_closed:
                raise ValueError(f"weft: {self._what} is closed")
            if self._forks != _forks:
                self._users, self._forks = 0, _forks
            self._users += 1
        return self._pointer

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            self._users -= 1
            if self._users > 0 or not self.is_closed:
                return
        check(self._release(self._pointer))

    def close(self) -> None:
        """Release the pointer: now, or when the calls that run in other threads have ended. Later calls do nothing."""
        with _lock:
            if self.is_closed:
                return
            self.is_closed = True
            if self._forks == _forks and self._users > 0:
                return
        check(self._release(self._pointer))
