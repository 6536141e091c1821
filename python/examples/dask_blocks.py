"""Count words with dask.bag and sum an array with dask.array, in worker processes.

usage: python dask_blocks.py [URL]     by default weft:///examples
"""

import sys

import dask.array
import dask.bag


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "weft:///examples"

    lines = dask.bag.from_sequence([f"line {number}" for number in range(1000)], npartitions=4)
    lines.to_textfiles(f"{url}/lines/*.txt")
    words = dask.bag.read_text(f"{url}/lines/*.txt", blocksize=2000).str.split().flatten().frequencies()
    counted = dict(words.compute(scheduler="processes", num_workers=2))

    squares = dask.array.arange(100_000, chunks=10_000) ** 2
    squares.to_zarr(f"{url}/squares.zarr", overwrite=True)
    total = dask.array.from_zarr(f"{url}/squares.zarr").sum().compute(scheduler="processes", num_workers=2)

    assert counted["line"] == 1000 and total == sum(number**2 for number in range(100_000))
    print(f"{counted['line']} lines, sum of squares {total}")


if __name__ == "__main__":
    main()
