"""The embedded cluster of `weft run`, without any configuration; and I/O delegates."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from servers import weft_command

#: Writes a file, and prints its size in a listing while bytes may still be with delegates.
WRITE = """
import weft_fs
with weft_fs.Cluster() as cluster:
    assert cluster.info.is_embedded
    with cluster.open("f", "wb") as file:
        file.write(b"x" * 5000)
        entry, = (entry for entry in cluster.scandir() if entry.name == "f")
        print(entry.stat().size, cluster.stat("f").size)
"""
READ = "import weft_fs; print(len(weft_fs.Cluster().read_bytes('/weft/f')))"


@pytest.fixture
def home() -> Iterator[pathlib.Path]:
    # Short, because the path of a Unix socket has at most 107 bytes.
    made = pathlib.Path(tempfile.mkdtemp(prefix="py"))
    yield made
    weft(made, "stop")
    shutil.rmtree(made)


def weft(home: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(home, str(weft_command()), *arguments)


def run(home: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "TMPDIR": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_embedded_cluster(home: pathlib.Path) -> None:
    done = weft(home, "run", "--", sys.executable, "-c", WRITE)
    assert done.returncode == 0 and done.stdout == "5000 5000\n", done.stderr
    # Its servers run for a while after the last use, and other programs find them.
    done = run(home, sys.executable, "-c", READ)
    assert done.returncode == 0 and done.stdout == "5000\n", done.stderr
    done = weft(home, "run", "--delegates", "2", "--", sys.executable, "-c", WRITE)
    assert done.returncode == 0 and done.stdout == "5000 5000\n", done.stderr
    assert weft(home, "stop").returncode == 0
    done = run(home, sys.executable, "-c", READ)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "weft: " in last and "weft run" in last, done.stderr
