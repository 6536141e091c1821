"""Names, attributes, layouts and the objects of the cluster."""

from __future__ import annotations

import errno
import os
import pickle
import stat

import pytest
from servers import Servers

import weft_fs
from weft_fs import Column, LayoutSpec


def test_directories(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.makedirs(f"{at}/a/b/c")
    with pytest.raises(FileExistsError):
        cluster.makedirs(f"{at}/a/b/c")
    cluster.makedirs(f"/weft/{at}/a/b/c/", exist_ok=True)
    cluster.write_bytes(f"{at}/a/file", b"12345")
    cluster.symlink("file", f"{at}/a/link")
    cluster.symlink("b", f"{at}/a/linked-directory")
    cluster.symlink("nowhere", f"{at}/a/broken")
    assert cluster.listdir(f"{at}/a") == ["b", "broken", "file", "link", "linked-directory"]
    entries = {entry.name: entry for entry in cluster.scandir(f"{at}/a")}
    assert entries["file"].stat().size == 5 and entries["file"].is_file() and not entries["file"].is_dir()
    assert entries["link"].is_symlink() and entries["link"].is_file()
    assert not entries["link"].is_file(follow_symlinks=False)
    assert entries["link"].stat(follow_symlinks=False).is_symlink and entries["link"].stat().size == 5
    assert entries["linked-directory"].is_dir() and not entries["broken"].is_file()
    assert entries["b"].path == f"{at}/a/b" and os.fspath(entries["b"]) == f"{at}/a/b"
    assert cluster.readlink(f"{at}/a/link") == "file"
    walked = list(cluster.walk(at))
    assert walked[0] == (at, ["a"], [])
    assert walked[1] == (f"{at}/a", ["b"], ["broken", "file", "link", "linked-directory"])
    assert list(cluster.walk(at, topdown=False)) == walked[::-1]
    with pytest.raises(OSError) as caught:
        cluster.rmdir(f"{at}/a")
    assert caught.value.errno == errno.ENOTEMPTY
    cluster.rmtree(f"{at}/a")
    assert not cluster.exists(f"{at}/a")
    with pytest.raises(ValueError, match="root"):
        cluster.rmtree("/")


def test_many_names(cluster: weft_fs.Cluster, at: str) -> None:
    names = [f"{number:05}" for number in range(2500)]
    for name in names:
        cluster.symlink("x", f"{at}/{name}")
    assert cluster.listdir(at) == names
    assert all(entry.stat(follow_symlinks=False).is_symlink for entry in cluster.scandir(at))
    # An iterator that is not used up releases its directory.
    first = next(iter(cluster.scandir(at)))
    assert first.name == "00000"


def test_a_directory_named_like_the_mount(cluster: weft_fs.Cluster) -> None:
    cluster.makedirs("weft/inner")
    try:
        walked = [path for path, _, _ in cluster.walk("/")]
        assert walked[:3] == ["/", "weft", "weft/inner"]
    finally:
        cluster.rmtree("weft")


def test_renames_links_and_attributes(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.write_bytes(f"{at}/one", b"1")
    cluster.link(f"{at}/one", f"{at}/two")
    assert cluster.stat(f"{at}/two").nlink == 2
    cluster.rename(f"{at}/one", f"{at}/three")
    assert not cluster.exists(f"{at}/one") and cluster.is_file(f"{at}/three")
    cluster.chmod(f"{at}/three", 0o640)
    assert stat.S_IMODE(cluster.stat(f"{at}/two").mode) == 0o640
    cluster.chown(f"{at}/three", gid=os.getegid())
    cluster.utime(f"{at}/three", (1_500_000_000_123_456_789, -5))
    found = cluster.stat(f"{at}/three")
    assert (found.atime_ns, found.mtime_ns) == (1_500_000_000_123_456_789, -5)
    cluster.utime(f"{at}/three")
    assert cluster.stat(f"{at}/three").mtime > 1_600_000_000
    assert cluster.access(f"{at}/three", os.R_OK) and not cluster.access(f"{at}/none")
    cluster.truncate(f"{at}/three", 10)
    assert cluster.read_bytes(f"{at}/two") == b"1" + b"\0" * 9
    cluster.unlink(f"{at}/two")
    with pytest.raises(ValueError, match="zero byte"):
        cluster.stat("a\0b")
    odd = os.fsdecode(b"\xff\xfe")
    cluster.write_bytes(f"{at}/{odd}", b"")
    assert odd in cluster.listdir(at)


def test_extended_attributes(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.setxattr(at, "user.one", b"value\0with zero")
    cluster.setxattr(at, "user.empty", b"")
    assert cluster.getxattr(at, "user.one") == b"value\0with zero"
    assert cluster.getxattr(at, "user.empty") == b""
    assert sorted(cluster.listxattr(at)) == ["user.empty", "user.one"]
    with pytest.raises(FileExistsError):
        cluster.setxattr(at, "user.one", b"", os.XATTR_CREATE)
    cluster.removexattr(at, "user.one")
    with pytest.raises(OSError) as caught:
        cluster.getxattr(at, "user.one")
    assert caught.value.errno == errno.ENODATA


def test_layouts(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/exact", "wb", layout=LayoutSpec(strips=[(2, 4096), (0, 47008)])) as file:
        file.write(bytes(200_000))
        layout = file.layout
    assert layout.targets == (2, 0) and layout.stripe_count == 2 and layout.stripe_size is None
    assert layout.columns[1] == Column(target=0, stripe_size=47008, start=0, end=None, component=0, column=1)
    assert [column.target for column in layout] == [2, 0] and len(layout) == 2
    cluster.mkdir(f"{at}/ssd")
    cluster.set_layout(f"{at}/ssd", LayoutSpec(class_name="ssd", stripe_size=8192))
    cluster.write_bytes(f"{at}/ssd/file", b"x")
    layout = cluster.layout(f"{at}/ssd/file")
    assert layout.targets == (2,) and layout.stripe_size == 8192
    assert len(cluster.layout(at)) == 0
    with pytest.raises(OSError) as caught:
        cluster.open(f"{at}/none", "wb", layout=LayoutSpec(class_name="tape"))
    assert caught.value.errno == errno.EINVAL and "tape" in str(caught.value)
    with pytest.raises(ValueError, match="empty"):
        cluster.open(f"{at}/none", "wb", layout=LayoutSpec(strips=[]))


def test_compression(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/small", "w+b", compression="zstd:3/128KiB") as file:
        file.write(b"content" * 100_000)
        file.fsync()
        assert file.pread(14, 7) == b"contentcontent"
    assert cluster.getxattr(f"{at}/small", "user.weft.compress") == b"zstd:3/128KiB"
    cluster.set_compression(at, "lz4")
    cluster.set_compression(at, None)
    with pytest.raises(OSError, match="gzip"):
        cluster.open(f"{at}/none", "wb", compression="gzip")


def test_cluster_and_statistics(cluster: weft_fs.Cluster, servers: Servers, at: str) -> None:
    info = cluster.info
    assert info.name == "python" and info.file == str(servers.file) and info.mount == "/weft"
    assert [server.name for server in info.servers] == ["s0", "s1"] and info.servers[0].has_metadata
    assert [(target.id, target.class_name, target.server) for target in info.targets] == [
        (0, "hdd", "s0"), (1, "hdd", "s1"), (2, "ssd", "s1"),
    ]
    assert not info.is_embedded and info.emulated == ()
    status = cluster.status()
    assert status.is_healthy
    assert [server.pid for server in status.servers] == [servers.running[name].pid for name in ("s0", "s1")]
    assert status.servers[0].metadata is not None and status.servers[0].metadata.inodes >= 2
    assert status.servers[1].metadata is None
    assert all(server.is_up and server.uptime > 0 and server.version for server in status.servers)
    for target in status.targets:
        assert target.is_up and target.state == "active" and 0 < target.free <= target.total and target.ssd is None
    space = cluster.space()
    assert 0 < space.free <= space.total and space.used == space.total - space.free and space.inodes > 0


def test_connections(cluster: weft_fs.Cluster, servers: Servers, at: str) -> None:
    again = pickle.loads(pickle.dumps(cluster))
    again.write_bytes(f"{at}/f", b"12345")
    file = again.open(f"{at}/f")
    again.close()
    again.close()
    with pytest.raises(ValueError, match="connection is closed"):
        again.stat("/")
    assert file.read() == b"12345", "open files stay usable"
    file.close()
    assert weft_fs.__version__.count(".") == 2
