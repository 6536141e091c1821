"""h5py: HDF5 files that are written, extended and read."""

import fsspec
import h5py
import numpy

from case import EVERYWHERE, Case, main


def fill(file):
    chance = numpy.random.default_rng(5)
    file["whole"] = chance.standard_normal((200, 300))
    file.create_dataset("group/chunks", data=numpy.arange(100_000), chunks=(777,), maxshape=(None,), compression="gzip")
    file["group"].attrs["unit"] = "m"


def values(file):
    return [file["whole"][:], file["group/chunks"][:], file["group/chunks"][5:99_000:7], str(file["group"].attrs["unit"])]


def save(place):
    with h5py.File(f"{place}/a.h5", "w") as file:
        fill(file)
    with h5py.File(f"{place}/a.h5", "r+") as file:
        file["group/chunks"].resize(150_000, axis=0)
        file["group/chunks"][120_000:] = 9
        del file["whole"]
        file["whole"] = numpy.ones((50, 50))


def load(place):
    with h5py.File(f"{place}/a.h5", "r") as file:
        return values(file)


def save_swmr(place):
    with h5py.File(f"{place}/a.h5", "w", libver="latest") as file:
        rows = file.create_dataset("rows", shape=(0, 100), maxshape=(None, 100), chunks=(8, 100), dtype="f8")
        file.swmr_mode = True
        for row in range(50):
            rows.resize(row + 1, axis=0)
            rows[row] = row
            rows.flush()


def load_swmr(place):
    with h5py.File(f"{place}/a.h5", "r", libver="latest", swmr=True) as file:
        return file["rows"][:]


def save_to_url(place):
    with fsspec.open(f"{place}/a.h5", "w+b" if "://" not in place else "wb") as raw, h5py.File(raw, "w") as file:
        fill(file)


def load_from_url(place):
    with fsspec.open(f"{place}/a.h5", "rb") as raw, h5py.File(raw, "r") as file:
        return values(file)


if __name__ == "__main__":
    main("h5py", {
        "files": Case(save, load),
        "one writer, many readers": Case(save_swmr, load_swmr),
        "file object": Case(save_to_url, load_from_url, EVERYWHERE),
    })
