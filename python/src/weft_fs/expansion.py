"""Names and patterns: which files a call of fsspec means."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from glob import has_magic
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import LocalFileSystem, make_path_posix, trailing_sep
from fsspec.utils import other_paths, stringify_path

from .errors import error


class Expanding(AbstractFileSystem):  # type: ignore[misc]
    """A file system where a name that exists is that file, even if it could be a pattern.

    fsspec expands every name with `*`, `?` or `[`: a removal of `file[1]` would remove `file1`. Here a name is expanded
    only if no file has it. `glob` and `glob.escape` still work as usual.
    """

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """Return the paths of names and patterns, and with `recursive` all paths below them."""
        given: Iterable[Any] = [path] if isinstance(path, (str, os.PathLike)) else path
        names = [self._strip_protocol(one) for one in given]
        found: set[str] = set()
        for name in names:
            try:
                # Each by itself, because one of several may exist. A list, because fsspec forgets `assume_literal`
                # of a single name.
                is_literal = assume_literal or _is_literal(self, name)
                found |= set(super().expand_path([name], recursive, maxdepth, assume_literal=is_literal, **kwargs))
            except FileNotFoundError:
                pass  # an error only if no other name exists
        if not found:
            shown = ", ".join(names)
            raise error(errno.ENOENT, f"weft: {shown}: no file has this name, or matches it as a pattern", shown)
        return sorted(found)

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files, and with `recursive` directories. An existing directory gets them inside."""
        if _is_literal(self, path1) and isinstance(path2, str):
            path1, path2 = _pairs(self, path1, path2, trailing_sep(path2) or self.isdir(path2), recursive, maxdepth)
        super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **kwargs)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy files to the local file system, and with `recursive` directories."""
        if _is_literal(self, rpath) and isinstance(lpath, str):
            lpath = make_path_posix(lpath)
            is_dir = trailing_sep(lpath) or os.path.isdir(lpath)
            rpath, lpath = _pairs(self, rpath, lpath, is_dir, recursive, maxdepth)
        return super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy files of the local file system, and with `recursive` directories."""
        local = LocalFileSystem()
        if _is_literal(local, lpath) and isinstance(rpath, str):
            is_dir = trailing_sep(rpath) or self.isdir(rpath)
            target = self._strip_protocol(rpath)
            lpath, rpath = _pairs(local, make_path_posix(lpath), target, is_dir, recursive, maxdepth)
        return super().put(lpath, rpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)


def _is_literal(fs: Any, path: Any) -> bool:
    """Return whether a name that could be a pattern exists."""
    # Without the URL's scheme: `lexists` of local files takes none.
    return isinstance(path, str) and has_magic(path) and fs.lexists(fs._strip_protocol(stringify_path(path)))


def _pairs(
    fs: Any, source: str, target: str, target_is_dir: bool, recursive: bool, maxdepth: int | None
) -> tuple[list[str], list[str]]:
    """Return the sources and targets that fsspec chooses for a name without `*`, `?` and `[`."""
    found = fs.expand_path([source], recursive=recursive, maxdepth=maxdepth, assume_literal=True)
    if not recursive or maxdepth is not None:
        found = [path for path in found if not fs.isdir(path)]
    exists = target_is_dir and not trailing_sep(source)
    return found, other_paths(found, target, exists=exists) if found else []
