"""The file system for fsspec, beyond fsspec's own tests."""

from __future__ import annotations

import pathlib

import fsspec
import numpy
import pyarrow
import pyarrow.dataset
import pytest
from servers import Servers

import weft_fs
from weft_fs.filesystem import COPY_LEN, WeftFileSystem


@pytest.fixture
def fs(servers: Servers) -> WeftFileSystem:
    return WeftFileSystem(cluster=servers.file)


def test_urls(fs: WeftFileSystem, servers: Servers, at: str) -> None:
    assert fsspec.get_filesystem_class("weft") is WeftFileSystem
    for url in (f"weft:///{at}/f", f"weft://{at}/f", f"/{at}/f", f"/{at}/f/"):
        assert WeftFileSystem._strip_protocol(url) == f"/{at}/f"
    assert WeftFileSystem._strip_protocol(f"{at}/f/") == f"{at}/f"
    assert WeftFileSystem._strip_protocol("weft://") == "/" and WeftFileSystem._strip_protocol("") == ""
    assert fs.unstrip_protocol(f"{at}/f") == f"weft:///{at}/f"
    with fsspec.open(f"weft:///{at}/text", "wt", cluster=str(servers.file)) as file:
        file.write("line\n")
    found, path = fsspec.core.url_to_fs(f"weft:///{at}/text", cluster=str(servers.file))
    assert path == f"/{at}/text" and found.cat_file(path) == b"line\n"
    with fsspec.open(f"weft:///{at}/packed.gz", "wb", compression="infer", cluster=str(servers.file)) as file:
        file.write(b"12345")
    assert fs.cat(f"{at}/packed.gz")[:2] == b"\x1f\x8b"


def test_listing(fs: WeftFileSystem, at: str) -> None:
    fs.pipe({f"{at}/d/one": b"1", f"{at}/d/e/two": b"22"})
    fs.symlink(f"{at}/d/one", f"{at}/link")
    fs.weft.symlink("nowhere", f"{at}/broken")
    found = {info["name"]: info for info in fs.ls(f"weft:///{at}")}
    assert {name: (info["type"], info["size"], info["islink"]) for name, info in found.items()} == {
        f"/{at}/d": ("directory", 0, False),
        f"/{at}/link": ("file", 1, True),
        f"/{at}/broken": ("link", 7, True),
    }
    assert found[f"/{at}/link"]["destination"] == "d/one"
    # Names begin as the given ones do.
    for above in (f"/{at}", at):
        assert fs.ls(f"{above}/d/one", detail=False) == [f"{above}/d/one"]
        names = [f"{above}/{name}" for name in ("broken", "d/e/two", "d/one", "link")]
        assert fs.find(above) == names and fs.glob(f"{above}/**/two") == [f"{above}/d/e/two"]
        assert [place for place, _, _ in fs.walk(above)] == [above, f"{above}/d", f"{above}/d/e"]
    assert at in fs.ls("", detail=False) and f"/{at}" in fs.ls("/", detail=False)
    assert fs.glob(f"{at}*") == [at] and fs.glob(f"/{at}*") == [f"/{at}"] and fs.du(f"{at}/d") == 3
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{at}/none")
    assert fs.exists(at) and fs.isdir(at) and not fs.isfile(at) and not fs.exists(f"{at}/d/one/below")
    assert not fs.exists(f"{at}/broken") and fs.lexists(f"{at}/broken") and fs.islink(f"{at}/broken")
    assert fs.modified(f"{at}/d/one").tzinfo is not None and fs.created(at).tzinfo is not None
    assert fs.fsid == "weft_python" and fs.ls("/") and fs.info("/")["type"] == "directory"


def test_a_dataset_is_found_by_names_with_and_without_a_slash(fs: WeftFileSystem, at: str) -> None:
    table = pyarrow.table({"part": ["a", "b"] * 50, "number": list(range(100))})
    for place in (f"{at}/relative", f"/{at}/absolute"):
        pyarrow.dataset.write_dataset(table, place, format="parquet", partitioning=["part"], filesystem=fs)
        found = pyarrow.dataset.dataset(place, format="parquet", partitioning=["part"], filesystem=fs)
        assert sorted(found.to_table()["number"].to_pylist()) == list(range(100))


def test_directories_are_no_files(fs: WeftFileSystem, at: str) -> None:
    fs.mkdir(f"{at}/d")
    for mode in ("rb", "r+b", "wb"):
        with pytest.raises(IsADirectoryError):
            fs.open(f"{at}/d", mode)


def test_a_layout_as_a_dictionary(fs: WeftFileSystem, servers: Servers, at: str) -> None:
    with fs.open(f"{at}/f", "wb", layout={"stripe_count": 1, "stripe_size": 65536}) as file:
        file.write(bytes(100_000))
    with fs.open(f"{at}/f", "rb") as file:
        layout = file.file.layout
        assert (layout.stripe_count, layout.stripe_size) == (1, 65536)
    of_all = WeftFileSystem(cluster=servers.file, layout={"stripe_count": 1})
    of_all.pipe_file(f"{at}/g", bytes(100_000))
    with pytest.raises(TypeError, match="'stripes': the fields are stripe_size, stripe_count"):
        fs.open(f"{at}/h", "wb", layout={"stripes": 2})
    with pytest.raises(TypeError, match="int: give a LayoutSpec"):
        fs.open(f"{at}/h", "wb", layout=2)
    assert not fs.exists(f"{at}/h")


def test_a_root_name_like_the_mount(fs: WeftFileSystem) -> None:
    fs.pipe_file("/weft/inner/f", b"x")
    try:
        assert "/weft" in fs.ls("/", detail=False) and fs.find("/weft") == ["/weft/inner/f"]
    finally:
        fs.rm("/weft", recursive=True)


def test_ranges(fs: WeftFileSystem, at: str) -> None:
    data = numpy.random.default_rng(5).bytes(300_000)
    fs.pipe_file(f"{at}/f", memoryview(data))
    fs.pipe_file(f"{at}/g", b"0123456789")
    for start, end in ((None, None), (5, 10), (-10, None), (None, -5), (-20, -10), (7, 3), (299_990, 400_000)):
        assert fs.cat_file(f"{at}/f", start, end) == data[start:end], (start, end)
    paths = [f"{at}/f", f"{at}/g", f"{at}/f", f"{at}/none", f"{at}/g"]
    found = fs.cat_ranges(paths, [0, 2, 100_000, 0, -3], [10, 4, 200_000, 5, None])
    assert found[:3] == [data[:10], b"23", data[100_000:200_000]] and found[4] == b"789"
    assert isinstance(found[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 5, on_error="raise")
    assert fs.head(f"{at}/g", 3) == b"012" and fs.tail(f"{at}/g", 3) == b"789"
    assert fs.read_block(f"{at}/g", 2, 4) == b"2345"
    with pytest.raises(IsADirectoryError):
        fs.cat_file(at)


@pytest.mark.parametrize("options", [{}, {"block_size": 0}, {"block_size": 100}, {"cache_type": "none"},
                                     {"cache_type": "bytes"}, {"cache_type": "blockcache", "block_size": 4096},
                                     {"cache_type": "all"}])
def test_readers(fs: WeftFileSystem, at: str, options: dict) -> None:
    data = numpy.random.default_rng(6).bytes(700_000)
    fs.pipe_file(f"{at}/f", data)
    with fs.open(f"{at}/f", "rb", **options) as file:
        assert file.size == 700_000 and file.readable() and not file.writable()
        assert file.read(5) == data[:5] and file.tell() == 5
        array = numpy.zeros(600_000, dtype=numpy.uint8)
        assert file.readinto(array) == 600_000 and array.tobytes() == data[5:600_005]
        file.seek(-3, 2)
        assert file.read() == data[-3:] and file.read() == b""
    assert file.closed


def test_writers(fs: WeftFileSystem, at: str) -> None:
    with fs.open(f"{at}/new/f", "wb") as file:
        file.write(b"one")
        file.write(memoryview(bytes(1_000_000)))
        assert file.tell() == 1_000_003
    with fs.open(f"{at}/new/f", "ab") as file:
        file.write(b"end")
    with fs.open(f"{at}/new/f", "r+b") as file:
        file.seek(1)
        file.write(b"N")
        file.seek(0)
        assert file.read(3) == b"oNe"
    assert fs.tail(f"{at}/new/f", 4) == b"\0end" and fs.size(f"{at}/new/f") == 1_000_006
    strict = WeftFileSystem(cluster=fs.weft.cluster_file, auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        strict.open(f"{at}/no/f", "wb")
    placed = WeftFileSystem(cluster=fs.weft.cluster_file, layout=weft_fs.LayoutSpec(class_name="ssd"))
    placed.pipe_file(f"{at}/placed", b"x")
    assert fs.weft.layout(f"{at}/placed").targets == (2,)
    fs.touch(f"{at}/placed", truncate=False)
    assert fs.cat_file(f"{at}/placed") == b"x"
    fs.touch(f"{at}/placed")
    assert fs.cat_file(f"{at}/placed") == b""


def test_transactions(fs: WeftFileSystem, at: str) -> None:
    fs.pipe_file(f"{at}/old", b"old")
    with fs.transaction:
        with fs.open(f"{at}/old", "wb") as file:
            file.write(b"new")
        fs.pipe_file(f"{at}/made", b"made")
        assert fs.cat_file(f"{at}/old") == b"old" and not fs.exists(f"{at}/made")
    assert fs.cat_file(f"{at}/old") == b"new" and fs.cat_file(f"{at}/made") == b"made"
    with pytest.raises(RuntimeError), fs.transaction:
        fs.pipe_file(f"{at}/old", b"lost")
        file = fs.open(f"{at}/other", "wb")
        file.write(b"x")
        raise RuntimeError
    assert fs.cat_file(f"{at}/old") == b"new"
    with pytest.raises(ValueError, match="appending in a transaction"), fs.transaction:
        fs.open(f"{at}/old", "ab")
    with pytest.raises(FileExistsError), fs.transaction:
        fs.open(f"{at}/raced", "xb").close()
        fs.weft.write_bytes(f"{at}/raced", b"first")
    assert fs.cat_file(f"{at}/raced") == b"first"
    assert sorted(fs.weft.listdir(at)) == ["made", "old", "raced"], "no draft is left"


def test_copies(fs: WeftFileSystem, at: str, tmp_path: pathlib.Path) -> None:
    data = numpy.random.default_rng(7).bytes(COPY_LEN + 12345)
    local = tmp_path / "local"
    local.write_bytes(data)
    calls = fsspec.callbacks.Callback()
    fs.put_file(local, f"{at}/f", callback=calls)
    assert calls.size == calls.value == len(data)
    fs.cp_file(f"{at}/f", f"{at}/g")
    fs.cp_file(f"{at}/g", f"{at}/g")
    fs.get_file(f"{at}/g", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(FileExistsError):
        fs.put_file(local, f"{at}/f", mode="create")
    fs.makedirs(f"{at}/d")
    fs.mv(f"{at}/g", f"{at}/d")
    assert fs.ls(f"{at}/d", detail=False) == [f"{at}/d/g"]
    fs.mv(f"{at}/d", f"{at}/e/h")
    assert fs.find(at) == [f"{at}/e/h/g", f"{at}/f"]
    with pytest.raises(OSError):
        fs.rm(f"{at}/e")
    fs.weft.symlink("e", f"{at}/s")
    fs.rm([f"{at}/s"], recursive=True)
    assert fs.exists(f"{at}/e/h/g"), "a link is removed, not followed"
    fs.rm(f"{at}/e", recursive=True)
    assert fs.find(at) == [f"{at}/f"]
    assert fs.ukey(f"{at}/f") == fs.ukey(f"{at}/f")
    fs.rm_file(f"{at}/f")
    with pytest.raises(FileNotFoundError):
        fs.rm_file(f"{at}/f")
    with pytest.raises(ValueError, match="root"):
        fs.rm("/", recursive=True)
