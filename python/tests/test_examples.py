"""The examples, as programs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from servers import Servers

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
#: Last line of each example, which asserts what it read; and the argument below a directory of the test.
EXPECTED = {
    "numpy_array.py": ("{at}", "8000000 bytes on 3 targets, row 500 begins with 0.5000"),
    "pandas_table.py": ("weft:///{at}", "1000 rows, 3497.0 seconds"),
    "xarray_zarr.py": ("weft:///{at}", "steps 8 to 11 have the mean 9.5"),
    "h5py_file.py": ("{at}/deep/field.h5", "55.0 K"),
    "dask_blocks.py": ("weft:///{at}", "1000 lines, sum of squares 333328333350000"),
}


def test_all_examples_are_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name: str, servers: Servers, at: str) -> None:
    argument, line = EXPECTED[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, argument.format(at=at)],
        env={**os.environ, "WEFT_CLUSTER": str(servers.file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == line + "\n"
    assert done.stderr == ""
