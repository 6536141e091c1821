"""Files of Weft, a parallel file system in user space.

>>> import weft_fs
>>> with weft_fs.Cluster() as cluster:
...     with cluster.open("run/out", "wb") as file:
...         file.write(memoryview(array))

`fsspec` finds `weft://` by itself: `pandas.read_csv("weft:///run/table.csv")`.
"""

from ._binding import ffi as _ffi
from ._binding import lib as _lib
from .cluster import Cluster
from .directory import DirEntry
from .errors import WeftError
from .file import File
from .layout import Column, Layout, LayoutSpec
from .locks import Lock, LockInfo
from .stat import Space, Stat
from .stats import (
    ClusterInfo,
    ClusterStatus,
    MetadataStatus,
    Server,
    ServerStatus,
    SsdStatus,
    Target,
    TargetStatus,
)

#: Version of the library in this package.
__version__: str = _ffi.string(_lib.weft_version()).decode()

connect = Cluster

__all__ = [
    "Cluster",
    "ClusterInfo",
    "ClusterStatus",
    "Column",
    "DirEntry",
    "File",
    "Layout",
    "LayoutSpec",
    "Lock",
    "LockInfo",
    "MetadataStatus",
    "Server",
    "ServerStatus",
    "Space",
    "SsdStatus",
    "Stat",
    "Target",
    "TargetStatus",
    "WeftError",
    "connect",
]
