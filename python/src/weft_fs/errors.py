"""Errors: subclasses of OSError with the message of Weft, which names path, server and remedy."""

from __future__ import annotations

import errno


class WeftError(OSError):
    """Error of a call of Weft.

    An error whose number has a subclass of OSError is an instance of that subclass as well: `ENOENT` of
    FileNotFoundError, `EACCES` of PermissionError, and so on.
    """

    def __str__(self) -> str:
        # The message names the path already.
        return f"[Errno {self.errno}] {self.strerror}"


class WeftFileNotFoundError(WeftError, FileNotFoundError):
    """A file or directory does not exist."""


class WeftFileExistsError(WeftError, FileExistsError):
    """A file or directory exists already."""


class WeftPermissionError(WeftError, PermissionError):
    """The user may not do this."""


class WeftIsADirectoryError(WeftError, IsADirectoryError):
    """A directory where a file was expected."""


class WeftNotADirectoryError(WeftError, NotADirectoryError):
    """A file where a directory was expected."""


class WeftBlockingIOError(WeftError, BlockingIOError):
    """Another owner holds the lock."""


class WeftTimeoutError(WeftError, TimeoutError):
    """An operation took too long."""


class WeftInterruptedError(WeftError, InterruptedError):
    """A signal interrupted the call."""


class WeftConnectionError(WeftError, ConnectionError):
    """A connection failed."""


_CLASSES: dict[int, type[WeftError]] = {
    errno.ENOENT: WeftFileNotFoundError,
    errno.EEXIST: WeftFileExistsError,
    errno.EACCES: WeftPermissionError,
    errno.EPERM: WeftPermissionError,
    errno.EISDIR: WeftIsADirectoryError,
    errno.ENOTDIR: WeftNotADirectoryError,
    errno.EAGAIN: WeftBlockingIOError,
    errno.ETIMEDOUT: WeftTimeoutError,
    errno.EINTR: WeftInterruptedError,
    errno.ECONNREFUSED: WeftConnectionError,
    errno.ECONNRESET: WeftConnectionError,
    errno.ECONNABORTED: WeftConnectionError,
}


def error(number: int, message: str, path: str | None = None) -> WeftError:
    """Return the error for an errno and a message."""
    if not message.startswith("weft: "):
        message = f"weft: {message}"
    if path is None:
        return _CLASSES.get(number, WeftError)(number, message)
    return _CLASSES.get(number, WeftError)(number, message, path)
