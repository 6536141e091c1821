"""What the programs of this directory share: a case writes files in one process and reads them in another."""

import hashlib
import importlib.metadata
import json
import pathlib
import sqlite3
import sys
from dataclasses import dataclass
from typing import Any, Callable

# Interfaces: the preload library and the mount, which show a directory, and URLs of fsspec.
DIRECTORY = ("run", "mount")
EVERYWHERE = (*DIRECTORY, "url")


@dataclass(frozen=True)
class Case:
    """`write` fills a new directory (or URL of one), `read` returns what it finds there, without anything that changes
    from run to run."""

    write: Callable[[str], None]
    read: Callable[[str], Any]
    interfaces: tuple[str, ...] = DIRECTORY


def digest(value):
    """Returns a value with hashes in place of bytes and arrays."""
    if isinstance(value, dict):
        return {str(key): digest(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [digest(one) for one in value]
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return f"{value.dtype}{list(value.shape)}:{hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)}:{hashlib.sha256(value).hexdigest()[:16]}"
    return value


def file_bytes(place):
    """Returns the bytes of each file below a directory."""
    root = pathlib.Path(place)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def main(package, cases):
    """Runs `PROGRAM list`, `PROGRAM write CASE DIR` or `PROGRAM read CASE DIR`."""
    action, *rest = sys.argv[1:]
    if action == "list":
        version = sqlite3.sqlite_version if package == "sqlite3" else importlib.metadata.version(package)
        print(json.dumps({"version": version, "cases": {name: case.interfaces for name, case in cases.items()}}))
        return
    name, place = rest
    if action == "write":
        cases[name].write(place)
    else:
        print(json.dumps(digest(cases[name].read(place)), indent=1, default=str))
