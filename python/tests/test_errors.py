"""Errors: classes, numbers, messages; servers that are killed; no cluster."""

from __future__ import annotations

import errno
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers import Servers

import weft_fs
from weft_fs import LayoutSpec

#: Clients of the killed servers give up after this time.
RETRY_S = 1
#: Bound for an error of a dead server, far above RETRY_S for a busy machine.
BOUND_S = 30


def test_classes_and_messages(cluster: weft_fs.Cluster, at: str) -> None:
    cases = [
        (lambda: cluster.open(f"{at}/none"), FileNotFoundError, errno.ENOENT),
        (lambda: cluster.mkdir(at), FileExistsError, errno.EEXIST),
        (lambda: cluster.listdir(f"{at}/f"), NotADirectoryError, errno.ENOTDIR),
        (lambda: cluster.open(at, "wb"), IsADirectoryError, errno.EISDIR),
        (lambda: cluster.rmdir(f"{at}/none"), FileNotFoundError, errno.ENOENT),
        (lambda: cluster.rename(f"{at}/none", f"{at}/x"), FileNotFoundError, errno.ENOENT),
        (lambda: cluster.readlink(f"{at}/f"), OSError, errno.EINVAL),
    ]
    cluster.write_bytes(f"{at}/f", b"")
    for call, kind, number in cases:
        with pytest.raises(kind) as caught:
            call()
        error = caught.value
        assert isinstance(error, weft_fs.WeftError) and error.errno == number, error
        assert "weft: " in str(error) and error.filename and error.filename in str(error), error
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and again.errno == number


@pytest.fixture
def mortal() -> Iterator[tuple[Servers, weft_fs.Cluster]]:
    servers = Servers(client=f'[client]\nretry_for = "{RETRY_S} s"\n')
    with weft_fs.Cluster(servers.file) as cluster:
        yield servers, cluster
    servers.stop()


def test_a_killed_server(mortal: tuple[Servers, weft_fs.Cluster], capfd: pytest.CaptureFixture[str]) -> None:
    servers, cluster = mortal
    layout = LayoutSpec(strips=[(1, 65536)])
    file = cluster.open("f", "w+b", layout=layout)
    file.write(b"x" * 200_000)
    file.fsync()
    servers.kill("s1")
    # A cold file: a leased descriptor would serve the open one without its server.
    begin = time.monotonic()
    with pytest.raises(OSError) as caught:
        with cluster.open("other", "w+b", layout=layout) as other:
            other.write(b"y" * 200_000)
    assert time.monotonic() - begin < BOUND_S
    assert caught.value.errno == errno.EIO and "s1" in str(caught.value), caught.value
    status = cluster.status()
    assert not status.is_healthy and [server.is_up for server in status.servers] == [True, False]
    assert "s1" in (status.servers[1].reason or "")
    assert [target.state for target in status.targets] == ["active", "down", "down"]
    # The metadata server still answers.
    assert cluster.exists("f")
    servers.start("s1")
    # A client asks a server that it has found dead only from time to time, at most ten seconds apart.
    assert until("s1 is used again", lambda: cluster.read_bytes("f")) == b"x" * 200_000
    file.close()
    servers.kill("s0")
    begin = time.monotonic()
    with pytest.raises(OSError) as caught:
        cluster.exists("f")
    assert time.monotonic() - begin < BOUND_S
    assert caught.value.errno == errno.EIO and "s0" in str(caught.value), caught.value
    servers.start("s0")
    assert until("s0 is used again", lambda: cluster.exists("f"))
    capfd.readouterr()


def until(what: str, call: Callable[[], Any]) -> Any:
    """Returns the result of a call, which is repeated while it fails."""
    end = time.monotonic() + BOUND_S
    while True:
        try:
            return call()
        except OSError as error:
            assert time.monotonic() < end, f"not within {BOUND_S} s: {what}: {error}"
            time.sleep(0.05)


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env={**kept, **variables}, capture_output=True, text=True, check=False
    )


def test_no_cluster(tmp_path: pathlib.Path) -> None:
    done = run("import weft_fs; weft_fs.Cluster()", HOME=str(tmp_path))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "weft: " in last and "weft run" in last, last
    with pytest.raises(OSError, match="/no/such/cluster.toml"):
        weft_fs.Cluster("/no/such/cluster.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[cluster\n")
    with pytest.raises(OSError, match="broken.toml:1") as caught:
        weft_fs.Cluster(broken)
    assert caught.value.errno == errno.EINVAL


def test_the_variable_names_the_cluster(servers: Servers, tmp_path: pathlib.Path) -> None:
    code = "import weft_fs; print(weft_fs.Cluster().info.name)"
    done = run(code, HOME=str(tmp_path), WEFT_CLUSTER=str(servers.file))
    assert done.stdout == "python\n", done.stderr


def test_an_interrupt_ends_the_wait_for_a_lock(servers: Servers, cluster: weft_fs.Cluster, at: str) -> None:
    code = (
        "import sys, weft_fs\n"
        "file = weft_fs.Cluster(sys.argv[1]).open(sys.argv[2], 'r+b')\n"
        "print('waits', flush=True)\n"
        "file.lock()\n"
    )
    with cluster.open(f"{at}/f", "w+b") as file, file.lock():
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(servers.file), f"{at}/f"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=BOUND_S)
    assert "KeyboardInterrupt" in error
