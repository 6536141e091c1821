"""Connections to a cluster."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any, Literal, overload

from ._binding import check, fail, ffi, lib
from ._handle import Handle
from .errors import WeftError
from .file import File
from .layout import LayoutLike
from .names import Names
from .stat import Space, space_from
from .stats import ClusterInfo, ClusterStatus, Server, cluster_from, status_from

_BinaryMode = Literal["rb", "r+b", "rb+", "wb", "w+b", "wb+", "xb", "x+b", "xb+", "ab", "a+b", "ab+"]

#: Length of a status for which memory is reserved at first.
_JSON_LEN = 65536
#: Length above which a status is an error.
_JSON_LEN_MAX = 1 << 28
#: Number of servers that are asked for their state at once.
_ASKED_MAX = 16


class Cluster(Names):
    """A connection to a cluster, with its files and directories.

    Without `cluster_file` it is the cluster that WEFT_CLUSTER names, else ~/.config/weft/cluster.toml, else
    /etc/weft/cluster.toml, else the embedded cluster of `weft run`. One connection serves all threads. After a fork,
    the child connects anew at its first use. A pickled connection is its cluster file: the reader connects anew.
    """

    def __init__(self, cluster_file: str | os.PathLike[str] | None = None) -> None:
        self.cluster_file = None if cluster_file is None else os.path.abspath(cluster_file)
        file = ffi.NULL if self.cluster_file is None else os.fsencode(self.cluster_file)
        pointer = lib.weft_connect(file)
        if pointer == ffi.NULL:
            fail(self.cluster_file)
        self._handle = Handle(pointer, lib.weft_disconnect, "the connection")

    def __repr__(self) -> str:
        state = " closed" if self._handle.is_closed else ""
        return f"<weft_fs.Cluster{state} {self.cluster_file or 'default'!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Cluster, (self.cluster_file,)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            try:
                handle.close()
            except OSError:
                pass  # nobody waits for the answer

    def close(self) -> None:
        """Disconnect. Files that are still open stay usable."""
        self._handle.close()

    @overload
    def open(
        self,
        path: str | bytes | os.PathLike[Any],
        mode: _BinaryMode = "rb",
        *,
        buffering: Literal[0] = 0,
        permissions: int = 0o666,
        layout: LayoutLike | None = None,
        compression: str | None = None,
        sync: bool = False,
    ) -> File: ...

    @overload
    def open(
        self,
        path: str | bytes | os.PathLike[Any],
        mode: str = "rb",
        *,
        buffering: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        permissions: int = 0o666,
        layout: LayoutLike | None = None,
        compression: str | None = None,
        sync: bool = False,
    ) -> IO[Any]: ...

    def open(
        self,
        path: str | bytes | os.PathLike[Any],
        mode: str = "rb",
        *,
        buffering: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        permissions: int = 0o666,
        layout: LayoutLike | None = None,
        compression: str | None = None,
        sync: bool = False,
    ) -> File | IO[Any]:
        """Open a file.

        The result is a `File` without a buffer, unless `buffering` gives the size of one in bytes. Mode "t" returns a
        text file. `layout` and `compression` are those of the file if this call creates it. With `sync`, a write is
        durable when it returns.
        """
        is_text = "t" in mode
        raw = File(
            self,
            path,
            mode.replace("t", ""),
            permissions=permissions,
            layout=layout,
            compression=compression,
            sync=sync,
        )
        if not is_text and buffering <= 0:
            return raw
        size = buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE
        buffered: Any
        if raw.readable() and raw.writable():
            buffered = io.BufferedRandom(raw, size)
        elif raw.writable():
            buffered = io.BufferedWriter(raw, size)
        else:
            buffered = io.BufferedReader(raw, size)
        return io.TextIOWrapper(buffered, encoding, errors, newline) if is_text else buffered

    def read_bytes(self, path: str | bytes | os.PathLike[Any]) -> bytes:
        """Return the content of a file."""
        with File(self, path, "rb") as file:
            return file.readall()

    def write_bytes(self, path: str | bytes | os.PathLike[Any], data: Any) -> int:
        """Replace the content of a file, or create it. Return the number of bytes."""
        with File(self, path, "wb") as file:
            return file.write(data)

    # ---------------------------------------------------------------- the cluster

    @property
    def info(self) -> ClusterInfo:
        """The cluster file: servers and targets. It asks no server."""
        return cluster_from(json.loads(self._json(lib.weft_describe, None)))

    def space(self) -> Space:
        """Return the space on all reachable targets."""
        place = ffi.new("struct statvfs *")
        with self._handle as weft:
            check(lib.weft_statvfs(weft, place))
        return space_from(place)

    def status(self) -> ClusterStatus:
        """Ask all servers for their state, several at once. One without a reply within 2.5 seconds is shown as down."""
        servers = self.info.servers
        with ThreadPoolExecutor(min(_ASKED_MAX, len(servers))) as pool:
            return status_from(list(zip(servers, pool.map(self._ask, servers))))

    def _ask(self, server: Server) -> dict[str, Any] | str:
        try:
            answer = self._json(lib.weft_server_status, server.name)
        except WeftError as error:
            return str(error.strerror)
        found: dict[str, Any] = json.loads(answer)
        return found

    def _json(self, call: Callable[..., int], server: str | None) -> bytes:
        arguments = () if server is None else (server.encode(),)
        size = _JSON_LEN
        while True:
            place = ffi.new("char[]", size)
            with self._handle as weft:
                length = call(weft, *arguments, place, size)
                if length < 0 and ffi.errno == errno.ERANGE and size < _JSON_LEN_MAX:
                    size *= 4
                    continue
                check(length)
            return bytes(ffi.buffer(place, length))

