"""Random operations on a file of Weft and on a local file, with equal results."""

from __future__ import annotations

import os
import pathlib
import random

import pytest

import weft_fs

#: Operations of one run.
STEPS = 400
#: Offsets and lengths around the stripes of the test cluster (64 KiB).
REACH = 300_000


@pytest.mark.parametrize("run", range(4))
def test_a_file_behaves_like_a_local_one(
    cluster: weft_fs.Cluster, at: str, tmp_path: pathlib.Path, run: int
) -> None:
    seed = int(os.environ.get("WEFT_TEST_PYTHON_SEED", random.SystemRandom().getrandbits(48))) + run
    print(f"seed {seed}: repeat with WEFT_TEST_PYTHON_SEED={seed - run}")
    chance = random.Random(seed)
    local = open(tmp_path / "model", "w+b", buffering=0)
    weft = cluster.open(f"{at}/f", "w+b")
    with local, weft:
        for step in range(STEPS):
            what = chance.choice(STEPS_OF)
            state = chance.getstate()
            expected = what(local, chance, "local")
            chance.setstate(state)
            found = what(weft, chance, "weft")
            assert found == expected, f"seed {seed}, step {step}: {what.__name__}"
            assert weft.tell() == local.tell(), f"seed {seed}, step {step}: position after {what.__name__}"
        assert weft.size() == os.fstat(local.fileno()).st_size
        weft.seek(0), local.seek(0)
        assert weft.read() == local.read(), f"seed {seed}"


def length_of(chance: random.Random) -> int:
    return chance.choice([0, 1, 7, 512, 4096, 65536, 65537, chance.randrange(REACH)])


def data_of(chance: random.Random) -> bytes:
    return chance.randbytes(length_of(chance))


def write(file, chance, kind):
    return file.write(memoryview(data_of(chance)))


def read(file, chance, kind):
    return file.read(length_of(chance))


def readall(file, chance, kind):
    return file.read()


def readinto(file, chance, kind):
    buffer = bytearray(length_of(chance))
    return file.readinto(buffer), buffer


def readline(file, chance, kind):
    return file.readline(chance.choice([-1, 0, 5, 20_000]))


def seek(file, chance, kind):
    return file.seek(chance.randrange(REACH))


def seek_end(file, chance, kind):
    return file.seek(chance.randrange(1000), os.SEEK_END)


def truncate(file, chance, kind):
    return file.truncate(chance.randrange(REACH))


def pwrite(file, chance, kind):
    data, offset = data_of(chance), chance.randrange(REACH)
    return file.pwrite(data, offset) if kind == "weft" else os.pwrite(file.fileno(), data, offset)


def pread(file, chance, kind):
    length, offset = length_of(chance), chance.randrange(REACH)
    return file.pread(length, offset) if kind == "weft" else os.pread(file.fileno(), length, offset)


def vectors(file, chance, kind):
    buffers, offset = [data_of(chance) for _ in range(chance.randrange(5))], chance.randrange(REACH)
    if kind == "weft":
        return file.pwritev(buffers, offset)
    return os.pwritev(file.fileno(), buffers, offset)


def scatter(file, chance, kind):
    buffers, offset = [bytearray(length_of(chance)) for _ in range(chance.randrange(5))], chance.randrange(REACH)
    if kind == "weft":
        return file.preadv(buffers, offset), buffers
    return os.preadv(file.fileno(), buffers, offset), buffers


STEPS_OF = [write, read, readall, readinto, readline, seek, seek, seek_end, truncate, pwrite, pread, vectors, scatter]
