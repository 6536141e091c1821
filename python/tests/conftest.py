"""Fixtures: one cluster for all tests of a run, and a directory of it for each test."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest

import weft_fs

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from servers import Servers  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    # A directory of this run alone, which is removed afterwards; pytest would keep that of its last runs.
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="weft-fs-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.option.basetemp, ignore_errors=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report a skipped test in the form that scripts/test.py counts."""
    list_of_skips = os.environ.get("WEFT_TEST_SKIPPED")
    if report.skipped and list_of_skips and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        with open(list_of_skips, "a") as file:
            file.write(f"setup\tpytest\t{report.nodeid}\t{' '.join(reason.split())}\n")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster(servers: Servers) -> Iterator[weft_fs.Cluster]:
    with weft_fs.Cluster(servers.file) as found:
        yield found


@pytest.fixture
def at(cluster: weft_fs.Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new directory of the cluster."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid.rpartition("/")[2])
    cluster.mkdir(name)
    yield name
    cluster.rmtree(name)
