"""numpy: files of arrays, and maps of them in all modes."""

import fsspec
import numpy

from case import DIRECTORY, EVERYWHERE, Case, file_bytes, main

SHAPE = (300, 1001)


def array():
    return numpy.random.default_rng(1).standard_normal(SHAPE)


def save(place):
    numpy.save(f"{place}/a.npy", array())
    numpy.savez(f"{place}/a.npz", one=array(), two=numpy.arange(10))
    array().tofile(f"{place}/raw")
    numpy.savetxt(f"{place}/text", array()[:5])


def load(place):
    with numpy.load(f"{place}/a.npz") as both:
        return [numpy.load(f"{place}/a.npy"), both["one"], both["two"], numpy.fromfile(f"{place}/raw"), numpy.loadtxt(f"{place}/text")]


def map_new(place):
    data = numpy.memmap(f"{place}/map", dtype="f8", mode="w+", shape=SHAPE)
    data[:] = array()
    data.flush()
    data[7] = 7
    del data
    new = numpy.lib.format.open_memmap(f"{place}/new.npy", mode="w+", dtype="i4", shape=(5000,))
    new[::3] = 5
    del new


def map_update(place):
    array().tofile(f"{place}/map")
    numpy.save(f"{place}/a.npy", array())
    data = numpy.memmap(f"{place}/map", dtype="f8", mode="r+", shape=SHAPE)
    data[::2] *= 2
    data.flush()
    again = numpy.load(f"{place}/a.npy", mmap_mode="r+")
    again[3:5] = again[10:12]
    del data, again


def map_private(place):
    array().tofile(f"{place}/map")
    data = numpy.memmap(f"{place}/map", dtype="f8", mode="c", shape=SHAPE)
    data[:] = 0  # in memory only
    data.flush()


def read_maps(place):
    found = file_bytes(place)
    return [found, numpy.memmap(f"{place}/map", dtype="f8", mode="r", shape=SHAPE), numpy.memmap(f"{place}/map", mode="c", offset=4096)]


def save_to_url(place):
    with fsspec.open(f"{place}/a.npy", "wb") as file:
        numpy.save(file, array())


def load_from_url(place):
    with fsspec.open(f"{place}/a.npy", "rb") as file:
        return numpy.load(file)


if __name__ == "__main__":
    main("numpy", {
        "files": Case(save, load),
        "memmap w+": Case(map_new, read_maps),
        "memmap r+": Case(map_update, read_maps),
        "memmap c": Case(map_private, read_maps),
        "file object": Case(save_to_url, load_from_url, EVERYWHERE),
    })
