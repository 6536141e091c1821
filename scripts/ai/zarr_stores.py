"""zarr: arrays in directories and in zip files."""

import numpy
import zarr

from case import DIRECTORY, EVERYWHERE, Case, main


def fill(store):
    group = zarr.create_group(store=store, overwrite=True)
    field = group.create_array("field", shape=(300, 300), chunks=(64, 100), dtype="f8")
    field[:] = numpy.random.default_rng(6).standard_normal((300, 300))
    field[10:20, ::3] = 1
    group.create_array("shards", data=numpy.arange(5000), chunks=(50,), shards=(1000,))
    group.attrs["unit"] = "m"


def values(store):
    group = zarr.open_group(store=store, mode="r")
    return [group["field"][:], group["shards"][17:4000:9], dict(group.attrs), sorted(name for name, _ in group.members())]


def save(place):
    fill(f"{place}/a.zarr")


def load(place):
    return values(f"{place}/a.zarr")


def save_zip(place):
    store = zarr.storage.ZipStore(f"{place}/a.zip", mode="w")
    zarr.create_array(store, data=numpy.arange(10_000).reshape(100, 100), chunks=(30, 30))
    store.close()


def load_zip(place):
    store = zarr.storage.ZipStore(f"{place}/a.zip", mode="r")
    return zarr.open_array(store, mode="r")[:]


if __name__ == "__main__":
    main("zarr", {"directory": Case(save, load, EVERYWHERE), "zip": Case(save_zip, load_zip, DIRECTORY)})
