"""Binding to libweft, the C interface of Weft.

The wheel contains the library and its declarations. `_declarations` is made from `weft.h` when the wheel is built, so
the header is their only source. Each call releases the GIL.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import _declarations
from .errors import error

ffi: Any = _declarations.ffi
lib: Any = ffi.dlopen(str(Path(__file__).with_name("libweft.so.0")), ffi.RTLD_NOW | ffi.RTLD_LOCAL)

#: Largest number of bytes that one call reads or writes, as on Linux.
COUNT_MAX = 0x7FFFF000

#: Makes bytes whose content is not set yet, as the C interface of CPython allows.
_unset_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_unset_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_unset_bytes.restype = ctypes.py_object


def fail(path: str | None = None) -> NoReturn:
    """Raise the error of the last call in this thread. Nothing may call the library in between."""
    number = ffi.errno
    text = ffi.string(lib.weft_error()).decode(errors="replace")
    raise error(number, text, path)


def check(result: int, path: str | None = None) -> int:
    """Return the result of a call, or raise its error if the result is negative."""
    if result < 0:
        fail(path)
    return result


def name(path: str | bytes | os.PathLike[Any]) -> bytes:
    """Return a path as the library takes it. A zero byte would end it silently."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"weft: {path!r}: the path contains a zero byte")
    return encoded


def text(path: str | bytes | os.PathLike[Any]) -> str:
    """Return a path for messages."""
    return os.fsdecode(path)


def source(data: Any) -> Any:
    """Return the memory of a buffer to write from, without a copy."""
    try:
        return ffi.from_buffer("char[]", data)
    except (ValueError, BufferError) as error:
        raise BufferError(
            f"weft: write: {error}; the bytes must be contiguous, copy them first, for example with bytes(view)"
        ) from None


def destination(buffer: Any) -> Any:
    """Return the memory of a buffer to read into, without a copy."""
    try:
        return ffi.from_buffer("char[]", buffer, require_writable=True)
    except (ValueError, BufferError) as error:
        raise BufferError(
            f"weft: readinto: {error}; the buffer must be writable and contiguous, such as a bytearray"
        ) from None


def read_bytes(length: int, read: Callable[[Any, int], int]) -> bytes:
    """Return up to `length` bytes that `read(place, length)` stored. They are read into the result, without a copy."""
    if length == 0:
        read(ffi.NULL, 0)
        return b""
    # Nothing else refers to the object yet, so its memory may change.
    data: bytes = _unset_bytes(None, length)
    done = read(ffi.from_buffer("char[]", data), length)
    return data if done == length else data[:done]
