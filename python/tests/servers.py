"""A cluster of `weft serve` processes for tests, ended by their process ids."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
#: Time that a server gets to exit in order.
EXIT_S = 30


def weft_command() -> pathlib.Path:
    """Return the built command: that of WEFT_TEST_COMMAND, else the debug build."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = pathlib.Path(os.environ.get("WEFT_TEST_COMMAND", target / "debug/weft"))
    if not command.is_file():
        raise FileNotFoundError(f"{command}: run `cargo build -p weft-cli`, or set WEFT_TEST_COMMAND")
    return command


class Servers:
    """Two servers: s0 with the metadata and target 0 of class hdd, s1 with targets 1 (hdd) and 2 (ssd)."""

    def __init__(self, client: str = "") -> None:
        # Short, because the path of a Unix socket has at most 107 bytes.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="py"))
        self.file = self.dir / "cluster.toml"
        self.running: dict[str, subprocess.Popen[str]] = {}
        subprocess.run([weft_command(), "key", "make", self.dir / "key"], check=True, stdout=subprocess.DEVNULL)
        self.file.write_text(
            f'[cluster]\nname = "python"\nkey_file = "{self.dir}/key"\n'
            + self._server("s0", "hdd", first=0)
            + self._server("s1", "hdd", "ssd", first=1)
            + '[layout]\nstripe_size = "64 KiB"\n'
            + client
        )
        for name in ("s0", "s1"):
            self.start(name, "--format")

    def _server(self, name: str, *classes: str, first: int) -> str:
        at = self.dir / name
        head = f'[[server]]\nname = "{name}"\naddress = "unix:{at}.socket"\nlog = "{at}.log"\n'
        if first == 0:
            # Tables of a server come before its targets.
            head += f'[server.metadata]\npath = "{self.dir}/metadata"\n'
        return head + "".join(
            f'[[server.target]]\nid = {id}\npath = "{self.dir}/target{id}"\nclass = "{class_name}"\n'
            for id, class_name in enumerate(classes, first)
        )

    def start(self, name: str, *options: str) -> None:
        """Start a server, and wait until it is ready."""
        command = [weft_command(), "--cluster", self.file, "serve", name, "--announce", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.running[name] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line, f"{name} did not start: {line!r}; {(self.dir / (name + '.log')).read_text()}"

    def kill(self, name: str) -> None:
        """End a server without warning."""
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self._close(process)

    def stop(self) -> None:
        """End all servers in order, and remove their files."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(EXIT_S)
            self._close(process)
        self.running.clear()
        shutil.rmtree(self.dir)

    @staticmethod
    def _close(process: subprocess.Popen[str]) -> None:
        if process.stdout is not None:
            process.stdout.close()
