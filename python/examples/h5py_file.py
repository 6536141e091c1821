"""Write an HDF5 file with h5py through a file object, change it in place, and read a part.

usage: python h5py_file.py [PATH]     by default examples/field.h5, below the root of the cluster
"""

import posixpath
import sys

import h5py
import numpy

import weft_fs

path = sys.argv[1] if len(sys.argv) > 1 else "examples/field.h5"

with weft_fs.Cluster() as cluster:
    cluster.makedirs(posixpath.dirname(path), exist_ok=True)
    field = numpy.arange(1_000_000, dtype=numpy.float32).reshape(1000, 1000)

    with cluster.open(path, "w+b") as file, h5py.File(file, "w") as h5:
        h5.create_dataset("field", data=field, chunks=(100, 100))
        h5["field"].attrs["unit"] = "K"

    with cluster.open(path, "r+b") as file, h5py.File(file, "r+") as h5:
        h5["field"][0, :10] = -1

    with cluster.open(path) as file, h5py.File(file, "r") as h5:
        part = h5["field"][0, 5:15]
        unit = h5["field"].attrs["unit"]

assert (part == [-1] * 5 + [10, 11, 12, 13, 14]).all()
print(f"{part.sum()} {unit}")
