"""Write a data set of xarray as zarr, append to it, and read a part.

usage: python xarray_zarr.py [URL]     by default weft:///examples
"""

import sys

import numpy
import xarray

url = sys.argv[1] if len(sys.argv) > 1 else "weft:///examples"
store = f"{url}/heat.zarr"


def heat(first: int) -> xarray.Dataset:
    steps = numpy.arange(first, first + 10)
    values = numpy.multiply.outer(steps, numpy.ones((64, 64)))
    return xarray.Dataset({"heat": (("step", "y", "x"), values)}, coords={"step": steps})


encoding = {"heat": {"chunks": (5, 32, 32)}}
heat(0).to_zarr(store, mode="w", encoding=encoding, consolidated=False)
heat(10).to_zarr(store, append_dim="step", consolidated=False)

with xarray.open_zarr(store, consolidated=False, chunks=None) as found:
    assert found.sizes == {"step": 20, "y": 64, "x": 64}
    part = found["heat"].sel(step=slice(8, 11))[:, 10:20, 30:40].values

assert part.shape == (4, 10, 10) and (part[:, 0, 0] == [8, 9, 10, 11]).all()
print(f"steps 8 to 11 have the mean {part.mean()}")
