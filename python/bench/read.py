"""Reads a file into an array of numpy, and by a C program with libweft, in turn.

usage: read.py --library DIRECTORY [--rounds N] [--mib N] [--json]

DIRECTORY has the libweft.so that the C program is linked with. Each round has one read of each kind: C, readinto,
read (which returns bytes), and a file of fsspec. Which comes first changes from round to round. Ratios are those of
speeds, within a round: the time of C divided by the time of Python.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy

import weft_fs
from weft_fs.filesystem import WeftFileSystem

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from servers import ROOT, Servers  # noqa: E402


def build(library: pathlib.Path, at: pathlib.Path) -> pathlib.Path:
    program = at / "read"
    include = ROOT / "crates/interfaces/capi/include"
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-I", include, HERE / "read.c", "-o", program]
    # The soname is libweft.so.0, which the directory of the build does not have.
    (at / "libweft.so.0").symlink_to(library / "libweft.so")
    subprocess.run([*command, library / "libweft.so", f"-Wl,-rpath,{at}"], check=True)
    return program


def timed(work: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    length = options.mib << 20
    servers = Servers()
    try:
        with tempfile.TemporaryDirectory() as made:
            times = measure(servers, build(options.library.resolve(), pathlib.Path(made)), length, options.rounds)
    finally:
        servers.stop()
    report(times, length, options.json)


def measure(servers: Servers, program: pathlib.Path, length: int, rounds: int) -> dict[str, list[int]]:
    cluster = weft_fs.Cluster(servers.file)
    data = numpy.random.default_rng(1).integers(0, 256, length, dtype=numpy.uint8)
    cluster.write_bytes("big", data)
    array = numpy.ones_like(data)
    raw = cluster.open("big")
    buffered = WeftFileSystem(cluster=servers.file).open("big")

    def fsspec_readinto() -> None:
        buffered.seek(0)
        assert buffered.readinto(array) == length

    control = subprocess.Popen(
        [program, servers.file, "big", str(length)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert control.stdin is not None and control.stdout is not None

    def in_c() -> int:
        control.stdin.write("\n")
        return int(control.stdout.readline())

    kinds: dict[str, Callable[[], int]] = {
        "C": in_c,
        "readinto": lambda: timed(lambda: raw.pread_into(array, 0)),
        "read": lambda: timed(lambda: raw.pread(length, 0)),
        "fsspec readinto": lambda: timed(fsspec_readinto),
    }
    times: dict[str, list[int]] = {kind: [] for kind in kinds}
    for number in range(rounds + 3):
        order = list(kinds)
        for kind in order[number % len(order) :] + order[: number % len(order)]:
            took = kinds[kind]()
            if number >= 3:  # the first rounds fill caches
                times[kind].append(took)
    assert (array == data).all()
    control.stdin.close()
    assert control.wait() == 0
    control.stdout.close()
    buffered.close()
    raw.close()
    cluster.close()
    return times


def report(times: dict[str, list[int]], length: int, as_json: bool) -> None:
    found = {}
    for kind, took in times.items():
        ratios = [c / python for c, python in zip(times["C"], took)]
        found[kind] = {
            "median_ns": statistics.median(took),
            "gib_per_s": length / statistics.median(took) * 1e9 / (1 << 30),
            "ratio_median": statistics.median(ratios),
            "ratio_of_best": min(times["C"]) / min(took),
            "ratio_min": min(ratios),
        }
    if as_json:
        print(json.dumps({"bytes": length, "rounds": len(times["C"]), "kinds": found}, indent=1))
        return
    print(f"{'read':16} {'GiB/s':>7} {'median':>7} {'best':>7} {'lowest':>7}   ratio to C, {len(times['C'])} rounds")
    for kind, figures in found.items():
        ratios = (figures["ratio_median"], figures["ratio_of_best"], figures["ratio_min"])
        print(f"{kind:16} {figures['gib_per_s']:7.2f} " + " ".join(f"{ratio:7.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
