"""Write an array of numpy and read it back, without a copy in Python.

usage: python numpy_array.py [DIRECTORY]     by default examples, below the root of the cluster
"""

import sys

import numpy

import weft_fs

directory = sys.argv[1] if len(sys.argv) > 1 else "examples"

with weft_fs.Cluster() as cluster:
    cluster.makedirs(directory, exist_ok=True)
    pressure = numpy.linspace(0.0, 1.0, 1_000_000).reshape(1000, 1000)
    wide = weft_fs.LayoutSpec(stripe_size=1 << 20)
    with cluster.open(f"{directory}/pressure", "wb", layout=wide) as file:
        file.write(pressure)
        file.fsync()

    back = numpy.empty_like(pressure)
    with cluster.open(f"{directory}/pressure") as file:
        file.readinto(back)
        # One row, by its position.
        row = numpy.empty(1000)
        file.pread_into(row, 500 * row.nbytes)
        targets = file.layout.targets

assert (back == pressure).all() and (row == pressure[500]).all()
print(f"{back.nbytes} bytes on {len(targets)} targets, row 500 begins with {row[0]:.4f}")
