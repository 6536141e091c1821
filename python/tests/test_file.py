"""Open files: bytes, buffers, positions, modes."""

from __future__ import annotations

import errno
import io
import os
import threading

import numpy
import pytest

import weft_fs

BIG = 3 * 1024 * 1024 + 17


def pattern(length: int, seed: int = 1) -> bytes:
    return numpy.random.default_rng(seed).bytes(length)


def test_bytes_return_as_written(cluster: weft_fs.Cluster, at: str) -> None:
    data = pattern(BIG)
    with cluster.open(f"{at}/big", "w+b") as file:
        assert file.write(data) == BIG
        assert file.tell() == BIG
        assert file.size() == BIG
        assert file.seek(0) == 0
        assert file.read() == data
        assert file.read() == b""
        assert file.pread(100, BIG - 7) == data[-7:]
        assert file.pread(100, BIG) == b""
        assert file.pread(100, BIG + 12345) == b""
    assert cluster.read_bytes(f"/weft/{at}/big") == data


def test_readinto_fills_the_given_memory(cluster: weft_fs.Cluster, at: str) -> None:
    data = pattern(BIG)
    cluster.write_bytes(f"{at}/f", data)
    with cluster.open(f"{at}/f") as file:
        array = numpy.zeros(BIG + 10, dtype=numpy.uint8)
        assert file.readinto(array) == BIG
        assert array[:BIG].tobytes() == data and not array[BIG:].any()
        # A slice at an unaligned address, at an unaligned offset.
        target = bytearray(1001)
        assert file.pread_into(memoryview(target)[1:], 4093) == 1000
        assert target == b"\0" + data[4093:5093]
        matrix = numpy.zeros((10, 25), dtype=numpy.float32)
        assert file.pread_into(matrix, 3) == 1000
        assert matrix.tobytes() == data[3:1003]


def test_memory_is_written_without_conversion(cluster: weft_fs.Cluster, at: str) -> None:
    data = pattern(8000)
    array = numpy.frombuffer(data, dtype=numpy.float64).reshape(100, 10)
    assert not array.flags.writeable, "a read-only buffer can be written from"
    with cluster.open(f"{at}/f", "w+b") as file:
        for buffer in (data, bytearray(data), memoryview(data), array, memoryview(array)):
            assert file.pwrite(buffer, 11) == 8000
            assert file.pread(8000, 11) == data
            file.pwrite(b"\0" * 8000, 11)
        assert file.write(memoryview(data)[3:13]) == 10
        assert file.pread(11, 0) == data[3:13] + b"\0"


def test_unfit_buffers_are_rejected(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.write_bytes(f"{at}/f", b"content")
    view = memoryview(bytearray(100))[::2]
    with cluster.open(f"{at}/f", "r+b") as file:
        with pytest.raises(BufferError, match="contiguous.*bytes\\(view\\)"):
            file.write(view)
        with pytest.raises(BufferError, match="contiguous"):
            file.readinto(view)
        with pytest.raises(BufferError, match="contiguous"):
            file.readinto(numpy.zeros((4, 4)).T[::2])
        with pytest.raises(BufferError, match="writable"):
            file.readinto(b"read-only")
        with pytest.raises(BufferError, match="writable"):
            file.readinto(memoryview(bytearray(5)).toreadonly())
        with pytest.raises(TypeError):
            file.write("text")
        assert file.pread(10, 0) == b"content"


def test_zero_lengths(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/empty", "w+b") as file:
        assert file.write(b"") == 0
        assert file.read() == b"" and file.read(0) == b"" and file.read(10) == b""
        assert file.readinto(bytearray()) == 0 and file.readinto(bytearray(5)) == 0
        assert file.preadv([], 0) == 0 and file.pwritev([], 5) == 0
        assert file.preadv([bytearray(0), bytearray(3)], 0) == 0
        assert file.size() == 0
        assert file.readline() == b"" and list(file) == []


def test_huge_offsets(cluster: weft_fs.Cluster, at: str) -> None:
    far = (1 << 42) + 5
    with cluster.open(f"{at}/sparse", "w+b") as file:
        assert file.pwrite(b"end", far) == 3
        assert file.size() == far + 3
        assert file.pread(10, far - 2) == b"\0\0end"
        assert file.seek(0, os.SEEK_END) == far + 3
        assert file.pread(1 << 50, far) == b"end", "reserves memory for existing bytes only"
        with pytest.raises(OSError) as caught:
            file.pwrite(b"x", (1 << 63) - 1)
        assert caught.value.errno in (errno.EFBIG, errno.EINVAL, errno.EOVERFLOW)
        with pytest.raises(OverflowError):
            file.pwrite(b"x", 1 << 63)
        with pytest.raises(OSError) as caught:
            file.pread(5, -1)
        assert caught.value.errno == errno.EINVAL
        assert file.size() == far + 3


def test_vectors(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "w+b") as file:
        assert file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")], 2) == 11
        first, second = bytearray(4), numpy.zeros(9, dtype=numpy.uint8)
        assert file.preadv([first, second], 0) == 13
        assert bytes(first) + second.tobytes() == b"\0\0onetwothree"


def test_appends(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.write_bytes(f"{at}/log", b"first\n")
    with cluster.open(f"{at}/log", "ab") as one, cluster.open(f"{at}/log", "ab") as two:
        assert one.tell() == 6
        assert one.write(b"one\n") == 4
        assert two.append(b"two\n") == 10
        assert one.append(memoryview(b"one\n")) == 14
        assert two.write(numpy.zeros(2, dtype=numpy.uint16)) == 4 and two.tell() == 22
        with pytest.raises(io.UnsupportedOperation):
            one.read()
    assert cluster.read_bytes(f"{at}/log") == b"first\none\ntwo\none\n\0\0\0\0"


def test_modes(cluster: weft_fs.Cluster, at: str) -> None:
    path = f"{at}/f"
    with pytest.raises(FileNotFoundError):
        cluster.open(path, "r+b")
    with cluster.open(path, "xb") as file:
        assert file.writable() and not file.readable() and file.seekable()
        with pytest.raises(io.UnsupportedOperation):
            file.readinto(bytearray(1))
    with pytest.raises(FileExistsError):
        cluster.open(path, "xb")
    with cluster.open(path, "rb") as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    for mode in ("", "b", "rw", "rr", "z", "r+w", "wU"):
        with pytest.raises(ValueError, match="mode"):
            cluster.open(path, mode)
    with cluster.open(path, "w+b") as file:
        file.write(b"0123456789")
        assert file.truncate(4) == 4 and file.size() == 4
        file.seek(2)
        assert file.truncate() == 2 and file.pread(9, 0) == b"01"
        assert file.truncate(5) == 5 and file.pread(9, 0) == b"01\0\0\0"
        with pytest.raises(ValueError, match="before the start"):
            file.seek(-1)
        assert file.seek(-2, os.SEEK_END) == 3 and file.seek(1, os.SEEK_CUR) == 4


def test_lines_and_text(cluster: weft_fs.Cluster, at: str) -> None:
    path = f"{at}/text"
    long = "é" * 6000
    with cluster.open(path, "wt", encoding="utf-8") as text:
        text.write(f"first\n{long}\nlast")
    with cluster.open(path, "rb") as file:
        assert file.readline() == b"first\n"
        assert file.readline(3) == "é".encode() + "é".encode()[:1]
        assert file.readline() == ("é" * 6000).encode()[3:] + b"\n"
        assert file.readline() == b"last" and file.readline() == b""
    with cluster.open(path, "rt", encoding="utf-8") as text:
        assert text.read().split("\n") == ["first", long, "last"]
    with cluster.open(path, "rb", buffering=64) as buffered:
        assert isinstance(buffered, io.BufferedReader)
        assert [len(line) for line in buffered] == [6, 12001, 4]


def test_a_closed_file_refuses(cluster: weft_fs.Cluster, at: str) -> None:
    file = cluster.open(f"{at}/f", "w+b")
    file.close()
    file.close()
    assert file.closed
    for call in (
        lambda: file.read(),
        lambda: file.readinto(bytearray(1)),
        lambda: file.write(b"x"),
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.append(b"x"),
        lambda: file.seek(0),
        lambda: file.tell(),
        lambda: file.size(),
        lambda: file.fsync(),
        lambda: file.stat(),
        lambda: file.lock(),
        lambda: file.truncate(0),
        lambda: file.readable(),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_failed_open_leaves_no_file(cluster: weft_fs.Cluster, at: str) -> None:
    with pytest.raises(FileNotFoundError):
        weft_fs.File(cluster, f"{at}/none", "rb")


def test_sync_and_attributes(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "wb", sync=True, permissions=0o600) as file:
        file.write(b"12345")
        file.fsync()
        file.flush()
        found = file.stat()
    assert (found.size, found.st_size, found.mode & 0o777) == (5, 5, 0o600)
    assert found.is_file and not found.is_dir and found.uid == os.geteuid()


def test_a_directory_is_no_file(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(at, "rb") as file:
        assert file.is_directory
        with pytest.raises(IsADirectoryError):
            file.read(10)
    with pytest.raises(IsADirectoryError):
        cluster.open(at, "wb")


def test_threads_share_a_file(cluster: weft_fs.Cluster, at: str) -> None:
    threads, pieces, length = 8, 20, 10_007
    failures: list[BaseException] = []
    with cluster.open(f"{at}/f", "w+b") as file:

        def work(number: int) -> None:
            try:
                for piece in range(pieces):
                    offset = (piece * threads + number) * length
                    data = pattern(length, offset)
                    assert file.pwrite(data, offset) == length
                    target = bytearray(length)
                    assert file.pread_into(target, offset) == length
                    assert target == data
            except BaseException as failure:
                failures.append(failure)

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert not failures
        for at_piece in range(threads * pieces):
            assert file.pread(length, at_piece * length) == pattern(length, at_piece * length)


def test_a_close_waits_for_calls_in_other_threads(cluster: weft_fs.Cluster, at: str) -> None:
    cluster.write_bytes(f"{at}/f", pattern(1 << 20))
    for _ in range(20):
        file = cluster.open(f"{at}/f")
        begun = threading.Event()
        ends: list[str] = []

        def work() -> None:
            buffer = bytearray(1 << 20)
            try:
                while True:
                    assert file.pread_into(buffer, 0) == 1 << 20
                    begun.set()
            except ValueError as closed:
                ends.append(str(closed))

        running = [threading.Thread(target=work) for _ in range(3)]
        for thread in running:
            thread.start()
        begun.wait()
        file.close()
        for thread in running:
            thread.join()
        assert len(ends) == 3 and all("closed" in end for end in ends)
