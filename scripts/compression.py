#!/usr/bin/env python3
"""Compressed files on plain local directories beside btrfs on a loop device of the same disk.

Five kinds of data, written and read by transfers of 1 MiB and of 47,008 bytes. A write ends with fsync; a read begins
with empty page caches. All arms run in turns; printed are medians over the rounds, and what the bytes take on the disk.

usage: scripts/compression.py [--rounds N] [--mib N] [--kinds text,libraries,...] [--dir DIR]

Needs root (loop device, mount, empty page caches), btrfs-progs, and the release build of weft.
"""

import argparse
import array
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TRANSFERS = (1 << 20, 47008)
KINDS = ("text", "libraries", "doubles", "protein", "random")
# Arms: name, and the setting of Weft or the mount option of btrfs.
ARMS = {
    "local": None,
    "weft off": "off",
    "weft lz4": "lz4",
    "weft zstd:1": "zstd:1",
    "btrfs": "compress=no",
    "btrfs lzo": "compress=lzo",
    "btrfs zstd:1": "compress=zstd:1",
}
# Idle time after which files are compressed completely, and more.
SETTLE_S = 60
# Each arm of Weft and the arm of btrfs that it is compared with.
PAIRS = (("weft off", "btrfs"), ("weft lz4", "btrfs lzo"), ("weft zstd:1", "btrfs zstd:1"))


def files_under(places, suffixes):
    for place in places:
        for path in sorted(pathlib.Path(place).rglob("*")):
            if path.is_file() and not path.is_symlink() and any(part in path.name for part in suffixes):
                yield path


def collect(places, suffixes, size):
    data = bytearray()
    for path in files_under(places, suffixes):
        data += path.read_bytes()
        if len(data) >= size:
            return bytes(data[:size])
    if not data:
        sys.exit(f"compression: found no files like {suffixes} under {places}")
    return bytes((data * (size // len(data) + 1))[:size])


def make(kind, size):
    rng = random.Random(1)
    if kind == "text":
        return collect(["/usr/include", "/usr/lib/python3", "/usr/share/doc"], [".h", ".py", ".txt"], size)
    if kind == "libraries":
        return collect(["/usr/lib/x86_64-linux-gnu", "/usr/lib"], [".so"], size)
    if kind == "doubles":
        values = (math.sin(i / 5000) * 100 + rng.random() * 1e-6 for i in range(size // 8))
        return array.array("d", values).tobytes()
    if kind == "protein":
        letters = "ALGVESIKRDTPNQFYMHCW"
        weights = (83, 97, 71, 69, 68, 66, 59, 58, 55, 55, 53, 47, 41, 39, 39, 29, 24, 23, 14, 11)
        table = "".join(letter * round(weight * 256 / sum(weights)) for letter, weight in zip(letters, weights))
        return rng.randbytes(size).translate((table * 2)[:256].encode())
    return rng.randbytes(size)


def worker(action, path, source, transfer):
    """Runs in a process of its own, for Weft under `weft run`. Prints the seconds from open to close."""
    data = memoryview(pathlib.Path(source).read_bytes())
    if action == "write":
        began = time.perf_counter()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for at in range(0, len(data), transfer):
            if os.write(fd, data[at : at + transfer]) != len(data[at : at + transfer]):
                sys.exit(f"compression: a short write to {path}")
        os.fsync(fd)
        os.close(fd)
        print(time.perf_counter() - began)
    else:
        parts = []
        began = time.perf_counter()
        fd = os.open(path, os.O_RDONLY)
        while part := os.read(fd, transfer):
            parts.append(part)
        os.close(fd)
        print(time.perf_counter() - began)
        if b"".join(parts) != data:
            sys.exit(f"compression: {path} has other bytes than were written")


def empty_page_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Bench:
    def __init__(self, options, directory):
        self.dir = directory
        root = pathlib.Path(__file__).resolve().parent.parent
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        self.weft = target / "release" / "weft"
        if not self.weft.exists():
            sys.exit(f"compression: {self.weft} is missing: run make first")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}
        self.env["WEFT_STATE"] = str(directory / "state")
        self.options = options
        self.mounts = {}

    def run(self, *command, **more):
        return subprocess.run([str(part) for part in command], check=True, env=self.env, **more)

    def weft_run(self, *command, **more):
        return self.run(self.weft, "run", "--state", self.env["WEFT_STATE"], "--", *command, **more)

    def start(self):
        (self.dir / "local").mkdir()
        self.run(self.weft, "run", "--state", self.env["WEFT_STATE"], "--fresh", "--yes", "--idle-exit", "10 min", "--", "true")
        for arm, setting in ARMS.items():
            if arm.startswith("weft"):
                self.weft_run("mkdir", f"/weft/{setting.replace(':', '-')}")
                self.run(self.weft, "setstripe", "--compress", setting, f"/weft/{setting.replace(':', '-')}")
            elif arm.startswith("btrfs"):
                name = setting.replace("=", "-").replace(":", "-")
                image, mount = self.dir / f"{name}.image", self.dir / name
                with open(image, "wb") as file:
                    file.truncate((self.options.mib * 8 + 512) << 20)
                made = subprocess.run(["mkfs.btrfs", "-q", str(image)], capture_output=True, text=True)
                if made.returncode != 0:
                    sys.exit(f"compression: mkfs.btrfs {image}: {made.stderr.strip()}")
                mount.mkdir()
                option = "loop" if setting == "compress=no" else f"loop,{setting}"
                self.run("mount", "-t", "btrfs", "-o", option, image, mount)
                self.mounts[arm] = mount

    def stop(self):
        for mount in self.mounts.values():
            subprocess.run(["umount", str(mount)], check=False)
        subprocess.run([str(self.weft), "stop", "--state", self.env["WEFT_STATE"]], env=self.env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def path(self, arm, kind, transfer):
        name = f"{kind}.{transfer}"
        if arm == "local":
            return self.dir / "local" / name
        if arm.startswith("weft"):
            return pathlib.Path("/weft") / ARMS[arm].replace(":", "-") / name
        return self.mounts[arm] / name

    def timed(self, arm, action, kind, source, transfer):
        command = [sys.executable, __file__, "--worker", action, self.path(arm, kind, transfer), source, transfer]
        run = self.weft_run if arm.startswith("weft") else self.run
        return float(run(*command, stdout=subprocess.PIPE, text=True).stdout)

    def remove(self, arm, kind, transfer):
        run = self.weft_run if arm.startswith("weft") else self.run
        run("rm", "-f", self.path(arm, kind, transfer))

    def stored(self, arm, kind, transfer):
        """Bytes on the disk; those of btrfs by what its file system has in use more than without the file, which is
        removed."""
        path = self.path(arm, kind, transfer)
        if arm.startswith("btrfs"):
            def in_use():
                self.run("btrfs", "filesystem", "sync", self.mounts[arm])
                usage = self.run("btrfs", "filesystem", "df", "--raw", self.mounts[arm], stdout=subprocess.PIPE, text=True)
                line = next(line for line in usage.stdout.splitlines() if line.startswith("Data"))
                return int(line.rsplit("used=", 1)[1])
            before = in_use()
            os.unlink(path)
            os.sync()
            return before - in_use()
        run = self.weft_run if arm.startswith("weft") else self.run
        found = run("stat", "-c", "%b", path, stdout=subprocess.PIPE, text=True)
        return int(found.stdout) * 512


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=48, help="MiB of each kind of data")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dir", default="target", help="directory on the disk to measure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("compression: loop devices and empty page caches need root")
    if not shutil.which("mkfs.btrfs"):
        sys.exit("compression: mkfs.btrfs is missing: apt-get install btrfs-progs")
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"compression: unknown kinds {sorted(unknown)}; there are {', '.join(KINDS)}")
    os.makedirs(options.dir, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compression.", dir=options.dir) as directory:
        bench = Bench(options, pathlib.Path(directory).resolve())
        try:
            bench.start()
            rows = [row for kind in kinds for row in measure(bench, kind, options)]
            # Weft compresses parts of chunks when a file is idle.
            print(f"# waiting {SETTLE_S} s until idle files are compressed", file=sys.stderr)
            time.sleep(SETTLE_S)
            for row in rows:
                if not row["arm"].startswith("btrfs"):
                    stored = bench.stored(row["arm"], row["kind"], row["transfer"])
                    row["stored"] = round_to(stored / (options.mib << 20))
        finally:
            bench.stop()
    if options.json:
        print("\n".join(json.dumps(row) for row in rows))
    else:
        print_tables(rows)


def measure(bench, kind, options):
    source = bench.dir / "source"
    source.write_bytes(make(kind, options.mib << 20))
    rows = []
    for transfer in TRANSFERS:
        seconds = {(arm, action): [] for arm in ARMS for action in ("write", "read")}
        stored = {}
        for round in range(options.rounds):
            arms = list(ARMS)
            for arm in arms[round % len(arms) :] + arms[: round % len(arms)]:
                print(f"# {kind}, {transfer} bytes, round {round + 1} of {options.rounds}, {arm}", file=sys.stderr)
                bench.remove(arm, kind, transfer)
                empty_page_caches()
                seconds[arm, "write"].append(bench.timed(arm, "write", kind, source, transfer))
                empty_page_caches()
                seconds[arm, "read"].append(bench.timed(arm, "read", kind, source, transfer))
                if round + 1 == options.rounds and arm.startswith("btrfs"):
                    stored[arm] = bench.stored(arm, kind, transfer)
        for (arm, action), times in seconds.items():
            rate = options.mib / statistics.median(times)
            row = {"kind": kind, "transfer": transfer, "action": action, "arm": arm, "mib_per_s": round_to(rate)}
            rows.append({**row, "stored": round_to(stored.get(arm, 0) / (options.mib << 20))})
    return rows


def round_to(value):
    return float(f"{value:.4g}")


def print_tables(rows):
    found = {(row["kind"], row["transfer"], row["action"], row["arm"]): row for row in rows}
    print("| data | transfer | action | " + " | ".join(f"{weft} / {btrfs}" for weft, btrfs in PAIRS) + " |")
    print("| --- | --- | --- | " + " | ".join("---" for _ in PAIRS) + " |")
    for kind, transfer, action in dict.fromkeys((row["kind"], row["transfer"], row["action"]) for row in rows):
        cells = []
        for pair in PAIRS:
            weft, btrfs = (found[kind, transfer, action, arm]["mib_per_s"] for arm in pair)
            cells.append(f"{weft:,.0f} / {btrfs:,.0f} = {weft / btrfs:.2f}")
        print(f"| {kind} | {transfer:,} | {action} | " + " | ".join(cells) + " |")
    print("\n| data | transfer | " + " | ".join(ARMS) + " |\n| --- | --- | " + " | ".join("---" for _ in ARMS) + " |")
    for kind, transfer in dict.fromkeys((row["kind"], row["transfer"]) for row in rows):
        cells = (f'{found[kind, transfer, "write", arm]["stored"]:.3f}' for arm in ARMS)
        print(f"| {kind} | {transfer:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
