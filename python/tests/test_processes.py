"""Forks, pickles and other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle

import fsspec
import pytest
from servers import Servers

import weft_fs
from weft_fs.filesystem import WeftFileSystem

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(work) -> None:
    """Calls `work` in a forked child, and fails if it does."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as failure:
            os.write(2, f"child: {failure!r}\n".encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_uses_files_and_connection(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "w+b") as file:
        file.write(b"parent")

        def work() -> None:
            assert file.pread(10, 0) == b"parent"
            file.pwrite(b"child", 10)
            assert cluster.listdir(at) == ["f"]
            with cluster.open(f"{at}/new", "wb") as new:
                new.write(b"child")
            file.close()

        in_child(work)
        assert file.pread(20, 0) == b"parent\0\0\0\0child", "a close in the child leaves the parent's file open"
        assert cluster.read_bytes(f"{at}/new") == b"child"


def test_a_child_does_not_inherit_locks(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "w+b") as file, file.lock():

        def work() -> None:
            with pytest.raises(BlockingIOError):
                file.lock(timeout=0)

        in_child(work)
        with cluster.open(f"{at}/f", "r+b") as other:
            assert other.test_lock() is not None, "the end of the child releases nothing of the parent"


def test_a_child_of_a_child(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.write_bytes(f"{at}/f", b"12345")
    file = cluster.open(f"{at}/f")

    def inner() -> None:
        assert file.read() == b"12345"

    in_child(lambda: in_child(inner))
    file.close()


def read(file) -> bytes:
    with file:
        return file.read()


def listing(fs: WeftFileSystem, path: str) -> list[str]:
    return fs.ls(path, detail=False)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_get_file_systems_and_files(servers: Servers, cluster: weft_fs.Cluster, at: str, method: str) -> None:
    cluster.write_bytes(f"{at}/f", b"0123456789")
    fs = WeftFileSystem(cluster=servers.file)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.apply(listing, (fs, f"/{at}")) == [f"/{at}/f"]
        with cluster.open(f"{at}/f") as raw, fs.open(f"{at}/f") as buffered, fs.open(f"{at}/f", block_size=0) as plain:
            for file in (raw, buffered, plain):
                file.seek(3)
                assert pool.map(read, [file, file]) == [b"3456789"] * 2
        pool.close()
        pool.join()


def test_what_cannot_be_pickled_says_so(servers: Servers, cluster: weft_fs.Cluster, at: str) -> None:
    fs = WeftFileSystem(cluster=servers.file)
    with cluster.open(f"{at}/f", "wb") as file, pytest.raises(TypeError, match="reading"):
        pickle.dumps(file)
    with pytest.raises(TypeError, match="reading"):
        pickle.dumps(file)
    with fs.open(f"{at}/f", "wb") as writer, pytest.raises(TypeError):
        pickle.dumps(writer)
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs, "fsspec keeps one object for the same options"
    opened = pickle.loads(pickle.dumps(fsspec.open(f"weft:///{at}/f", "rb", cluster=str(servers.file))))
    with opened as file:
        assert file.read() == b""
