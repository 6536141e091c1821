"""Unmodified programs on Weft: a part of scripts/ai.py, which `make ai` runs as a whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from servers import ROOT, weft_command

#: Programs whose packages are small, by interface.
PROGRAMS = {"run": "h5py,zarr", "mount": "numpy,sqlite,safetensors,h5py", "url": "numpy,safetensors,h5py,pyarrow"}


@pytest.mark.parametrize("interface", PROGRAMS)
def test_programs_find_what_they_find_in_a_local_directory(interface: str) -> None:
    if interface == "mount" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this user may not open /dev/fuse")
    command = [sys.executable, "-B", ROOT / "scripts/ai.py", "--weft", weft_command(), "--only", PROGRAMS[interface]]
    done = subprocess.run([*command, "--interfaces", interface], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
