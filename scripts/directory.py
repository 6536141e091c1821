#!/usr/bin/env python3
"""A directory with many files: on Weft with `weft run`, on a mount of it, and in a local directory.

Creates files, and prints the rate of each tenth. Then lists them, in alternating order: `ls -f`, `find`, and `ls -l`
with and without the directory's name. Printed are medians over the rounds, and ratios to the local directory. Then asks
for the attributes of each file by name, and removes all, again with the rate of each tenth.

usage: scripts/directory.py [--files N] [--rounds N] [--dir DIR]

Needs the release build of weft and FUSE. Servers and files are in DIR (default: target), which needs 2 GiB for
1,000,000 files.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A program that creates, asks for, or removes files, and prints the rate of each tenth.
LOAD = """
import os, sys, time
what, at, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
call = {"create": create, "stat": os.lstat, "remove": os.unlink}[what]
rates = []
for tenth in range(10):
    begin = time.monotonic()
    first, last = files * tenth // 10, files * (tenth + 1) // 10
    for number in range(first, last):
        call(f"{at}/{number:08}")
    rates.append(round((last - first) / (time.monotonic() - begin)))
print(*rates)
"""
LISTINGS = {
    "ls -f": ("ls -f {}", None),
    "find": ("find {}", None),
    "ls -l DIR": ("ls -l {}", None),
    "ls -l": ("ls -l", "{}"),
}


def main():
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", type=int, default=1_000_000, metavar="N")
    options.add_argument("--rounds", type=int, default=3, metavar="N")
    options.add_argument("--dir", default=ROOT / "target", metavar="DIR")
    args = options.parse_args()
    weft = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "weft"
    if not weft.exists():
        sys.exit(f"{weft} is missing: cargo build --release -p weft-cli -p weft-preload")
    pathlib.Path(args.dir).mkdir(parents=True, exist_ok=True)
    for name in ("WEFT_CLUSTER", "WEFT_STATE", "LD_PRELOAD"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="directory.", dir=args.dir) as where:
        measure(args, str(weft.resolve()), pathlib.Path(where))


def measure(args, weft, where):
    """Measures in an empty directory."""
    state, mount, local = where / "state", where / "mount", where / "local"
    run = [weft, "run", "--state", str(state), "--idle-exit", "1h", "--"]
    cluster = ["--cluster", str(state / "cluster.toml")]
    mount.mkdir()
    (local / "d").mkdir(parents=True)
    subprocess.run([*run, "mkdir", "/weft/d"], check=True)
    subprocess.run([weft, *cluster, "mount", str(mount)], check=True, stdout=subprocess.DEVNULL)
    try:
        arms = {"local": ([], local / "d"), "run": (run, pathlib.Path("/weft/d")), "mount": ([], mount / "d")}
        print(f"{args.files} files in one directory; operations per second in each tenth of the files")
        tenths("create", args, arms, ("local", "run"))
        heading = f"seconds, median of {args.rounds}"
        print(f"\n{heading:24}" + "".join(f"{arm:>10}" for arm in arms) + "  ratios to local")
        for name in LISTINGS:
            times = {arm: [] for arm in arms}
            for number in range(args.rounds):
                order = list(arms)
                for arm in order[number % len(order):] + order[:number % len(order)]:
                    times[arm].append(listed(name, args, *arms[arm]))
            medians = {arm: statistics.median(of) for arm, of in times.items()}
            row = "".join(f"{median:10.2f}" for median in medians.values())
            ratios = "".join(f"{medians[arm] / medians['local']:8.2f}" for arm in ("run", "mount"))
            print(f"{name:24}{row}  {ratios}", flush=True)
        print()
        tenths("stat", args, arms, arms)
        tenths("remove", args, arms, ("local", "run"))
    finally:
        subprocess.run([weft, "umount", str(mount)], check=False, stdout=subprocess.DEVNULL)
        subprocess.run([weft, *cluster, "stop"], check=False, stdout=subprocess.DEVNULL)


def tenths(what, args, arms, names):
    """Prints the rates of an operation on all files."""
    for arm in names:
        prefix, at = arms[arm]
        load = [*prefix, sys.executable, "-c", LOAD, what, str(at), str(args.files)]
        done = subprocess.run(load, check=True, capture_output=True, text=True)
        print(f"{what:8}{arm:8}{done.stdout.strip()}", flush=True)


def listed(name, args, prefix, at):
    """Returns the seconds that a listing takes, after checking its number of lines."""
    command, cwd = LISTINGS[name]
    command = command.format(at)
    if cwd:
        command = f"cd {at} && {command}"
    begin = time.monotonic()
    done = subprocess.run([*prefix, "sh", "-c", f"{command} | wc -l"], check=True, capture_output=True, text=True)
    took = time.monotonic() - begin
    lines = int(done.stdout)
    if not args.files <= lines <= args.files + 2:
        sys.exit(f"{command}: {lines} lines for {args.files} files")
    return took


if __name__ == "__main__":
    main()
