"""fsspec's own tests of file systems."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from fsspec.tests import abstract
from servers import Servers

from weft_fs.filesystem import WeftFileSystem


class WeftFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, servers: Servers) -> WeftFileSystem:
        return WeftFileSystem(cluster=servers.file)

    @pytest.fixture(params=["/", ""], ids=["absolute", "relative"])
    def fs_path(self, fs: WeftFileSystem, request: pytest.FixtureRequest) -> Iterator[str]:
        path = f"{request.param}abstract-{uuid.uuid4().hex}"
        fs.mkdir(path)
        yield path
        fs.rm(path, recursive=True)

    @pytest.fixture
    def fs_join(self) -> Any:
        return posixpath.join


class TestCopy(abstract.AbstractCopyTests, WeftFixtures):
    pass


class TestGet(abstract.AbstractGetTests, WeftFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, WeftFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, WeftFixtures):
    pass


class TestPut(abstract.AbstractPutTests, WeftFixtures):
    pass
