#!/usr/bin/env python3
"""Benchmark of the sign of the planner's advice.

Each case is a workload on a cluster. `weft plan` advises to change the layout of its files or to keep it, and `weft plan
--try` measures what the change does. Wrong are changes that are slower beyond chance, and keep answers where the best
alternative is faster beyond chance and by more than 10 %.

usage: scripts/advice.py [--only TEXT] [--times N] [--minutes N] [--output FILE]

Needs the release build of weft and its preload library. Writes docs/measurements/advice.md, with --only nothing.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB, MIB = 1 << 10, 1 << 20
# Fewer pairs cannot differ beyond chance at p < 0.05.
PAIRS_MIN = 6
# Least number of cases of a full run.
CASES_MIN = 40
# Gain from which on a keep answer is wrong.
GAIN_MIN = 1.10
# How many times the amount of I/O of the shortest cases. Programs differ from start to start by some 20 ms, so advice
# about replays of 0.1 s can only be to keep the layout.
SCALE = 6
# Limits of wrong answers: one of so many changes is slower, one of so many keep answers misses a gain.
SLOWER_ONE_IN, MISSED_ONE_IN = 40, 10
TIMEOUT_S = 300

DISK, FLASH = 'class = "hdd"\n', 'class = "ssd"\n'
EMULATED = [DISK + 'emulate = "hdd-7200"'] * 3, FLASH + 'emulate = "sata-ssd"'
CLUSTERS = {
    "plain": [DISK] * 3 + [FLASH] * 2,
    "emulated": EMULATED[0] + [EMULATED[1]] * 2,
    "little-ssd": EMULATED[0] + [EMULATED[1] + f'\ncapacity = "{4 * SCALE} MiB"'] * 2,
}


# --- workloads: lists of (rank, operation, file, offset, length), with None as a barrier of all ranks -----------------


def strided(ranks, size, count, operation="write", gap=0):
    """Each rank moves every RANKSth block of a shared file."""
    return [
        (rank, operation, "shared", (n * ranks + rank) * (size + gap), size) for n in range(count) for rank in range(ranks)
    ]


def segmented(ranks, size, count, operation="write"):
    """Each rank moves its own contiguous part of a shared file."""
    return [
        (rank, operation, "shared", (rank * count + n) * size, size) for n in range(count) for rank in range(ranks)
    ]


def scattered(ranks, size, count, operation="read", seed=1):
    """The ranks move the blocks of a shared file in random order."""
    blocks = list(range(ranks * count))
    random.Random(seed).shuffle(blocks)
    return [(n % ranks, operation, "shared", block * size, size) for n, block in enumerate(blocks)]


def own_files(ranks, size, count, operation="write"):
    return [(rank, operation, f"part.{rank}", n * size, size) for n in range(count) for rank in range(ranks)]


def write_then_read(written, read=None):
    """Writes, then reads the same ranges or those of `read`."""
    read = read or written
    return written + [None] + [(rank, "read", *rest) for rank, _, *rest in read]


def rows_of_cells(side, cells, dumps):
    """BTIO without collective calls: rows of 40-byte points of a cube that is divided among CELLS x CELLS ranks."""
    work, rows = [], side // cells
    for dump in range(dumps):
        for z in range(0, side, 4):
            for y in range(side):
                for x in range(cells):
                    rank = (y // rows % cells) * cells + x
                    offset = 40 * (dump * side**3 // 4 + z // 4 * side * side + y * side + x * rows)
                    work.append((rank, "write", "shared", offset, 40 * rows))
    return work


def mix(seed):
    """Several files with a random pattern each, used by turns."""
    chosen = random.Random(seed)
    parts = []
    for number in range(chosen.randint(2, 4)):
        ranks, size = chosen.choice((1, 2, 4, 8)), chosen.choice((4, 17, 64, 256, 1024)) * KIB
        count = SCALE * max(2, min(48, 8 * MIB // (ranks * size)))
        pattern = chosen.choice((strided, segmented, scattered))
        operation = chosen.choice(("read", "write"))
        part = pattern(ranks, size, count, operation)
        parts.append([(rank, what, f"file{number}", at, length) for rank, what, _, at, length in part])
    turns = [(index / len(part), number, item) for number, part in enumerate(parts) for index, item in enumerate(part)]
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])]


# Parameters of real programs, from the counters of public Darshan logs (github.com/darshan-hpc/darshan-logs). Sizes and
# their proportions are those of the logs; ranks and counts are fewer.


def mpi_io_test():
    """mpi-io-test: 32 ranks, 4 writes and then 4 reads of 16 MiB each, interleaved in a shared file."""
    return write_then_read(strided(4, 16 * MIB, SCALE))


def hdf5_diagonal():
    """A Python HDF5 program: 10 ranks, 400 reads of small files, 40 writes of 16,470 bytes in total for each run."""
    sizes = (65273, 19933, 7295, 3346, 1464, 661, 380, 96, 96)
    work = []
    for repeat in range(SCALE):
        work += [(rank, "read", f"module{repeat}.{n}", 0, size) for n, size in enumerate(sizes) for rank in range(10)]
        work.append(None)
        at = 16470 * repeat
        work += [(rank, "write", "field", at + 1647 * rank + 411 * n, 411) for n in range(4) for rank in range(10)]
        work.append(None)
    return work


def one_busy_rank():
    """Imbalanced I/O: of 496 ranks, one writes and reads nearly all, by 1 MiB; all read records of some hundred bytes."""
    main = [(0, "write", "main", n * MIB, MIB) for n in range(24 * SCALE)]
    records = [
        (rank, "read", "main", rank * 3992 + at, size)
        for rank in range(16)
        for at, size in ((0, 512), (512, 544), (1056, 328))
    ]
    return main + [None] + [(0, "read", *rest) for _, _, *rest in main] + [None] + records


def many_small_reads():
    """Imbalanced I/O: one rank reads text files of 20 MB by 8,162 bytes, in sequence."""
    return [(0, "read", f"text{n // 244}", n % 244 * 8162, 8162) for n in range(976 * SCALE)]


def e3sm():
    """E3SM-IO: unaligned writes of 800,964 bytes (64 %) and 1 MiB (36 %), 512 ranks interleaved in a shared file."""
    work, at = [], 276
    for n in range(8 * SCALE):
        for rank in range(4):
            size = 800964 if (n * 4 + rank) % 25 < 16 else MIB
            work.append((rank, "write", "shared", at, size))
            at += size
    return work


# Workloads of the tree: kind, and parameters of `weft workload show`.
TREE = {
    "btio-s": ("btio", "ranks=4", 'subtype="simple"', f"dumps={12 * SCALE}"),
    "btio-w": ("btio", "ranks=4", 'class="W"', f"dumps={8 * SCALE}"),
    "ior-strided-16k": ("ior", "ranks=4", 'transfer="16 KiB"', f'per_rank="{2 * SCALE} MiB"', 'layout="strided"', 'access="both"'),
    "ior-random-64k": ("ior", "ranks=8", 'transfer="64 KiB"', f'per_rank="{SCALE} MiB"', 'order="random"', 'access="read"'),
    "ior-large-2m": ("ior", "ranks=4", 'transfer="2 MiB"', f'per_rank="{16 * SCALE} MiB"', 'access="both"'),
    "mpi-io-65k": ("mpi-io-test", "ranks=8", 'size="65 KiB"', f'total="{8 * SCALE} MiB"', 'access="write"'),
    "hpio": ("hpio", "ranks=4", f"region_count={64 * SCALE}"),
    "tile": ("mpi-tile-io", "ranks=4", f"tile_y={8 * SCALE}"),
}
GENERATED = {
    "ior-segmented-1m": lambda: write_then_read(segmented(4, MIB, 8 * SCALE)),
    "ior-scattered-4k": lambda: scattered(4, 4 * KIB, 64 * SCALE),
    "ior-scattered-write-64k": lambda: scattered(8, 64 * KIB, 24 * SCALE, "write"),
    "ior-files-256k": lambda: write_then_read(own_files(4, 256 * KIB, 16 * SCALE)),
    "ior-one-rank-1m": lambda: segmented(1, MIB, 48 * SCALE, "read"),
    "btio-rows": lambda: rows_of_cells(32, 4, SCALE),
    "mpi-io-test": mpi_io_test,
    "hdf5-diagonal": hdf5_diagonal,
    "one-busy-rank": one_busy_rank,
    "many-small-reads": many_small_reads,
    "e3sm": e3sm,
    **{f"mix-{seed}": lambda seed=seed: mix(seed) for seed in range(1, 6)},
}


def trace_of(work, prefix):
    """Returns the trace as CSV. Each rank is busy from its last operation to the next; barriers align the ranks."""
    lines, clocks = ["rank,operation,file,offset,length,start_us,end_us"], {}
    begin = 0
    for item in work:
        if item is None:
            # An idle gap, at which a replay lets the ranks wait for each other.
            begin = max(clocks.values(), default=begin) + 10
            clocks = {}
            continue
        rank, operation, file, offset, length = item
        start = clocks.get(rank, begin)
        lines.append(f"{rank},{operation},{prefix}/{file},{offset},{length},{start},{start + 100}")
        clocks[rank] = start + 100
    return "\n".join(lines) + "\n"


def work_of_tree(weft, kind, *parameters):
    """Returns the reads, writes and syncs of a workload of the tree."""
    command = [weft, "workload", "show", kind]
    for parameter in parameters:
        command += ["--set", parameter]
    segments = {}  # by rank, divided at barriers
    for line in run(command).splitlines()[1:]:
        rank, _, operation, file, offset, length = line.split(",")
        of_rank = segments.setdefault(int(rank), [[]])
        if operation == "barrier":
            of_rank.append([])
        elif operation in ("read", "write", "sync"):
            name = file.strip("/").replace("/", "-")
            of_rank[-1].append((int(rank), operation, name, int(offset or 0), int(length or 0)))
    work = []
    for number in range(max(map(len, segments.values()))):
        for of_rank in segments.values():
            work += of_rank[number] if number < len(of_rank) else []
        work.append(None)
    return work


# --- clusters ---------------------------------------------------------------------------------------------------------


class Failed(Exception):
    """A command failed."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command[1:]))}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


class Cluster:
    """Servers with one target each, on Unix sockets below a directory."""

    def __init__(self, weft, directory, targets):
        self.weft, self.file, self.servers = weft, directory / "cluster.toml", []
        directory.mkdir()
        run([weft, "key", "make", directory / "key"])
        text = [f'[cluster]\nname = "{directory.name}"\nkey_file = "{directory}/key"']
        for number, target in enumerate(targets):
            at = directory / str(number)
            at.mkdir()
            text.append(f'[[server]]\nname = "s{number}"\naddress = "unix:{at}/socket"\nlog = "{at}/log"')
            if number == 0:
                text.append(f'[server.metadata]\npath = "{at}/metadata"')
            text.append(f'[[server.target]]\nid = {number}\npath = "{at}/target"\n{target}')
        text.append('[layout]\nstripe_size = "64 KiB"')
        self.file.write_text("\n".join(text) + "\n")

    def start(self):
        for name in [server["name"] for server in tomllib.loads(self.file.read_text())["server"]]:
            command = [self.weft, "--cluster", self.file, "serve", name, "--format", "--announce"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            self.servers.append(server)
            if server.stdout.readline().strip() != "ready":
                raise Failed(f"server {name} of {self.file} does not start")

    def call(self, *arguments):
        return run([self.weft, "--cluster", self.file, *arguments])

    def stop(self):
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    """Answer of the planner for a case, and what the trial says."""

    workload: str
    cluster: str
    answer: str
    """change or keep"""
    planner: str
    """Planner whose layouts were tried."""
    present_s: float
    planned_s: float
    ratio: float
    p: float
    verdict: str

    def is_slower(self):
        return self.answer == "change" and self.verdict == "slower"

    def is_missed(self):
        return self.answer == "keep" and self.verdict == "faster" and self.ratio > GAIN_MIN

    def row(self):
        wrong = "slower" if self.is_slower() else "missed gain" if self.is_missed() else ""
        return [
            self.workload, self.cluster, self.answer, self.planner, f"{self.present_s:.3f}", f"{self.planned_s:.3f}",
            f"{self.ratio:.2f}", f"{self.p:.3f}", self.verdict, wrong,
        ]


COLUMNS = ["workload", "cluster", "answer", "planner", "present (s)", "planned (s)", "present/planned", "p", "verdict", "wrong"]


def answer_of(cluster, trace, plan):
    """Plans and returns whether the plan changes layouts."""
    cluster.call("plan", trace, "--output", plan)
    return "change" if tomllib.loads(plan.read_text()).get("rules") else "keep"


def measure(cluster, name, workload, trace, plan, times):
    """Plans a case and tries the plan. For a keep answer, the fastest other layout is tried, by PSA if none is predicted to
    be faster."""
    answer = answer_of(cluster, trace, plan)
    for planner in ("best", "psa"):
        shown = cluster.call(
            "plan", trace, "--planner", planner, "--try", "--times", str(times), "--json", "--output", plan
        )
        trials = [line for line in map(json.loads, shown.splitlines()) if "trial" in line]
        if trials:
            break
    else:
        raise Failed("`weft plan --try --json` printed no trial")
    trial = trials[0]
    return Result(
        workload, name, answer, planner, trial["present_median_s"],
        trial["planned_median_s"], trial["ratio"], trial["p"], trial["verdict"],
    )


@dataclasses.dataclass
class Summary:
    """Counts over all cases, and whether they are within the limits."""

    results: list
    failures: list
    left_out: int

    def lines(self):
        changes = [result for result in self.results if result.answer == "change"]
        keeps = [result for result in self.results if result.answer == "keep"]
        slower, missed = sum(map(Result.is_slower, changes)), sum(map(Result.is_missed, keeps))
        faster = sum(result.verdict == "faster" for result in changes)
        spared = sum(result.verdict == "slower" for result in keeps)
        gains = sorted(result.present_s - result.planned_s for result in keeps if result.is_missed())
        sizes = f"; they are {gains[0]:.3f} to {gains[-1]:.3f} s" if gains else ""
        return [
            f"{len(self.results)} cases, {len(self.failures)} failed, {self.left_out} left out for lack of time",
            f"{len(changes)} changes recommended: {faster} faster beyond chance, {slower} slower "
            f"(limit 1 in {SLOWER_ONE_IN})",
            f"{len(keeps)} keep answers: {missed} missed gains above {GAIN_MIN - 1:.0%} "
            f"(limit 1 in {MISSED_ONE_IN}){sizes}",
            f"{spared} keep answers: the layout that was tried instead is slower beyond chance",
        ]

    def is_good(self):
        changes = sum(result.answer == "change" for result in self.results)
        keeps = len(self.results) - changes
        slower, missed = sum(map(Result.is_slower, self.results)), sum(map(Result.is_missed, self.results))
        within = slower * SLOWER_ONE_IN <= changes and missed * MISSED_ONE_IN <= keeps
        return within and not self.failures


def table(rows):
    rows = [COLUMNS, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def page(summary, times, took_s):
    def line(cells):
        return "| " + " | ".join(cells) + " |"

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    machine = f"{os.cpu_count()} processors, {memory:.0f} GiB, Linux {platform.release()}"
    load = pathlib.Path("/proc/loadavg").read_text().split()[0]
    rows = [line(result.row()) for result in summary.results]
    failures = [f"* failed: {name}: {why}" for name, why in summary.failures]
    return "\n".join([
        "# Sign of the planner's advice",
        "",
        "```console",
        "$ make advice",
        "```",
        "",
        f"{datetime.date.today()}. {machine}; load {load} at the end; {times} pairs of replays for each case; "
        f"{took_s / 60:.0f} minutes.",
        "",
        f"`emulated`: three `hdd-7200` and two `sata-ssd`. `little-ssd`: the same with {4 * SCALE} MiB of capacity on each SSD. `plain`:",
        "directories, after `weft profile --quick`. The present layout has stripes of 64 KiB over all targets.",
        "",
        *[f"* {text}" for text in summary.lines()],
        *failures,
        "",
        f"Replays have {SCALE} times the amount of I/O of the shortest form of each workload. On emulated devices the processor",
        "time of a message is not measured, so changes to narrow stripes may be slower with more ranks than processors.",
        "",
        "A change is slower if all pairs together say so at p < 0.05 (two-sided), which chance alone does once in 40 cases",
        "without a difference. For keep answers, the best alternative was tried.",
        "",
        line(COLUMNS),
        line(["---"] * len(COLUMNS)),
        *rows,
        "",
    ])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="TEXT", help="only cases whose name (WORKLOAD on CLUSTER) contains TEXT")
    options.add_argument("--times", type=int, default=PAIRS_MIN, metavar="N", help="pairs of replays of a case")
    options.add_argument("--minutes", type=float, default=20, metavar="N", help="begin no case after this time")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/measurements/advice.md", metavar="FILE")
    options = options.parse_args()
    if options.times < PAIRS_MIN:
        sys.exit(f"--times {options.times}: fewer than {PAIRS_MIN} pairs are never slower or faster beyond chance")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
    weft = target / "release/weft"
    if not weft.exists():
        sys.exit(f"{weft} is missing: run `make`")
    for variable in ("WEFT_CLUSTER", "WEFT_STATE"):
        os.environ.pop(variable, None)
    workloads = list(TREE) + list(GENERATED)
    names = [(workload, cluster) for cluster in CLUSTERS for workload in workloads]
    names = [pair for pair in names if options.only is None or options.only in " on ".join(pair)]
    # In a fixed random order, so that a run that ends early has seen all clusters.
    random.Random(1).shuffle(names)
    if not names:
        sys.exit(f"no case contains {options.only!r}")
    if options.only is None and len(names) < CASES_MIN:
        sys.exit(f"{len(names)} cases are fewer than {CASES_MIN}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (ROOT / "target").mkdir(exist_ok=True)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="advice.", dir=ROOT / "target"))
    began, clusters, summary = time.monotonic(), {}, Summary([], [], 0)
    try:
        for name in {cluster: None for _, cluster in names}:
            clusters[name] = Cluster(weft, directory / name, CLUSTERS[name])
            clusters[name].start()
            if name == "plain":
                print("measuring the plain directories", flush=True)
                clusters[name].call("profile", "--quick")
        for number, (workload, name) in enumerate(names, 1):
            if time.monotonic() - began > 60 * options.minutes:
                summary.left_out = len(names) - number + 1
                break
            case = f"{workload} on {name}"
            trace, plan = directory / "trace.csv", directory / "plan.toml"
            try:
                work = work_of_tree(weft, *TREE[workload]) if workload in TREE else GENERATED[workload]()
                trace.write_text(trace_of(work, f"/weft/{workload}"))
                result = measure(clusters[name], name, workload, trace, plan, options.times)
            except (Failed, subprocess.TimeoutExpired, ValueError, KeyError) as why:
                summary.failures.append((case, str(why)))
                print(f"[{number}/{len(names)}] {case}: failed: {why}", flush=True)
                continue
            summary.results.append(result)
            print(f"[{number}/{len(names)}] {case}: {result.answer}, {result.ratio:.2f}, {result.verdict}", flush=True)
    finally:
        for cluster in clusters.values():
            cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    summary.results.sort(key=lambda result: (list(CLUSTERS).index(result.cluster), workloads.index(result.workload)))
    print(table([result.row() for result in summary.results]))
    print("\n".join(summary.lines()))
    if options.only is None:
        options.output.write_text(page(summary, options.times, time.monotonic() - began))
        print(f"written to {options.output}")
    is_complete = options.only is not None or len(summary.results) >= CASES_MIN
    return 0 if summary.is_good() and is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
