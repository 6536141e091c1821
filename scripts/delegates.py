#!/usr/bin/env python3
"""I/O delegates beside the same programs without them.

Ordinary MPI programs write shared files in a local directory, on Weft and on a distributed file system (GlusterFS, see
scripts/distributed.sh). In each round every arm runs once, in another order; printed are medians over the rounds with
lowest and highest value, and ratios of medians. After every write, other processes read the file without delegates and
check every byte.

usage: scripts/delegates.py [--rounds N] [--delegates N] [--policies LIST] [--cases TEXT,...] [--json] [--check]

Needs the release build of weft, MPICH, HDF5, and root for the distributed file system and the slow network; cases that
need a missing part are skipped by name.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROCESSORS = len(os.sched_getaffinity(0))
SMALL = 47008
MIB = 1 << 20
# The two ranks that share a processor alternate at the scheduler's pace, so control runs take up to half a minute.
TIMEOUT_S = 300
# Rate of the slow network of case (e), in Mbit/s.
SLOW_MBIT_PER_S = 200
# Starts delegates that are reached by TCP only, over a network with a limited rate, and a program that uses them.
SLOW_NETWORK = """
set -e
rate=$1 weft=$2 dir=$3 policy=$4 delegates=$5
shift 5
ip link set lo up
tc qdisc add dev lo root tbf rate "${rate}mbit" burst 64k latency 50ms
if [ -n "$policy" ]; then
    rm -f "$dir/slow.key"
    "$weft" key make "$dir/slow.key" >/dev/null
    for index in $(seq 0 $((delegates - 1))); do peers=${peers-}${peers+,}127.0.0.1:$((7100 + index)); done
    rm -f "$dir/slow.ready" && mkfifo "$dir/slow.ready"
    for index in $(seq 0 $((delegates - 1))); do
        out=/dev/null
        [ "$index" != $((delegates - 1)) ] || out=$dir/slow.ready
        "$weft" delegate --peers "$peers" --key "$dir/slow.key" --index "$index" --policy "$policy" --no-cluster \
            --over "$dir/local" --announce >"$out" &
        pids="${pids-} $!"
    done
    # The last delegate is ready when all are.
    grep -qm1 ready <"$dir/slow.ready"
    export WEFT_DELEGATES=$peers WEFT_DELEGATE_KEY=$dir/slow.key
    set -- "$weft" run --over "$dir/local" -- "$@"
fi
"$@" && code=0 || code=$?
[ -z "${pids-}" ] || { kill $pids; wait $pids; }
exit $code
"""
PLACES = ("local", "weft", "distributed")
POLICIES = ("hashed", "first-touch")


@dataclasses.dataclass
class Case:
    """One row of the table: a program, and its fastest equivalent without collective calls."""

    name: str
    places: tuple
    ranks: int
    program: tuple
    """Program and arguments; {path} is a new file or, with `directory`, a new directory."""
    kind: str = "write"
    """Which of the program's times counts: write or read."""
    independent: tuple = ()
    """The same bytes with independent POSIX calls."""
    prepare: tuple = ()
    """Program that makes the files to read, without delegates."""
    check: tuple = ()
    """Program that checks the written bytes; programs that check themselves have none."""
    directory: bool = False
    options: tuple = ()
    """More options of `weft run --delegates`."""
    target: float = 0.0
    """Least speed of delegates divided by the speed without; 0 for cases where delegates are known to lose."""
    independent_target: float = 0.0
    slow_network: bool = False


def ior(*options):
    return ("ior_like", "{path}", *(str(option) for option in options))


def ior_case(name, places, ranks, transfers, *options, transfer=SMALL, block=1, **more):
    shape = ("-t", transfer, "-s", transfers, "-b", block)
    kind = more.get("kind", "write")
    more["program"] = ior(*shape, *options, *(["-R"] if kind == "read" else []))
    if kind == "read":
        more["prepare"] = ior(*shape, "-p")
        more["program"] += ("-v",)
    else:
        more["check"] = ior(*shape, "-p", "-R", "-v")
    if "-c" in options:
        more["independent"] = ior(*shape, "-p", *(["-R", "-v"] if kind == "read" else []))
    return Case(name=name, places=places, ranks=ranks, **more)


def cases():
    few, many = PROCESSORS, 2 * PROCESSORS
    # BTIO runs on a square number of ranks.
    square = max(q * q for q in range(1, many + 1) if q * q <= many)
    both = ("local", "weft")
    distributed = ("distributed",)
    return [
        ior_case("collective 47,008 B, ranks = 2 x processors", PLACES, many, 300, "-c", target=10, independent_target=0.7),
        ior_case("collective 47,008 B, ranks = processors", PLACES, few, 800, "-c", target=1, independent_target=0.7),
        ior_case("collective 47,008 B read, ranks = 2 x processors", both, many, 40, "-c", kind="read", target=10),
        ior_case("collective 47,008 B read, ranks = processors", both, few, 800, "-c", kind="read", target=1),
        ior_case("independent 47,008 B", PLACES, few, 800),
        ior_case("independent 1 MiB, aligned (a)", PLACES, few, 64, transfer=MIB, block=64, target=0.8),
        Case("BTIO full, 64^3", PLACES, square, ("btio", "{path}", "4"), target=2),
        Case("BTIO full, 102^3", distributed, square, ("btio", "{path}", "3", "102"), target=2),
        Case("FLASH-IO, 8^3", PLACES, few, ("flash_io", "{path}"), target=2),
        Case("FLASH-IO, 8^3, ranks = 2 x processors", distributed, many, ("flash_io", "{path}"), target=2),
        Case("S3D-IO, 25^3", PLACES, few, ("s3d_io", "{path}", "5"), directory=True, target=2),
        Case("S3D-IO, 25^3, ranks = 2 x processors", distributed, many, ("s3d_io", "{path}", "5"), directory=True, target=2),
        ior_case("independent 4 KiB reads of 1 MiB per rank (b)", both, few, 256, transfer=4096, block=256, kind="read"),
        ior_case("16 MiB, 8 MiB of memory per delegate (c)", both, few, 8, transfer=16 * MIB, block=8,
                 options=("--delegate-memory", "8MiB")),
        Case("20 files of 1 KiB per rank (d)", both, few, ("s3d_io", "{path}", "20", "2"), directory=True),
        ior_case(f"independent 47,008 B, network of {SLOW_MBIT_PER_S} Mbit/s (e)", ("local",), few, 100, slow_network=True),
    ]


class Bench:
    def __init__(self, options, directory):
        self.options = options
        self.dir = directory
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.weft = target / "release" / "weft"
        if not self.weft.exists():
            sys.exit(f"delegates: {self.weft} is missing: run make first")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}
        self.env["WEFT_STATE"] = str(directory / "state")
        self.distributed = None

    def run(self, *command, **more):
        result = subprocess.run([str(part) for part in command], env=self.env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, **more)
        if result.returncode != 0:
            sys.exit(f"delegates: {' '.join(map(str, command))}: exit {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def start(self):
        examples = ROOT / "examples"
        for source in ("delegates/ior_like.c", "delegates/s3d_io.c", "demo/btio.c"):
            self.run("mpicc.mpich", "-O2", "-o", self.dir / pathlib.Path(source).stem, examples / source)
        self.run("h5pcc.mpich", "-O2", "-o", "flash_io", examples / "delegates/flash_io.c", cwd=self.dir)
        (self.dir / "local").mkdir()
        self.run(self.weft, "run", "--fresh", "--yes", "--idle-exit", "10 min", "--", "mkdir", "-p", "/weft/delegates")
        if os.geteuid() == 0 and not self.options.no_distributed:
            self.distributed = self.dir / "gluster"
            self.run(ROOT / "scripts/distributed.sh", "start", self.distributed)

    def stop(self):
        if self.distributed:
            self.run(ROOT / "scripts/distributed.sh", "stop", self.distributed)
        subprocess.run([self.weft, "stop"], env=self.env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def base(self, place):
        return {"local": self.dir / "local", "weft": pathlib.Path("/weft/delegates"),
                "distributed": self.distributed and self.distributed / "mount"}[place]

    def under(self, place, policy=None, case=None):
        """Returns the words before mpiexec: none, `weft run`, or `weft run` with delegates."""
        if policy is None:
            return [self.weft, "run", "--"] if place == "weft" else []
        words = [self.weft, "run", "--delegates", self.options.delegates, "--delegate-policy", policy, *case.options]
        if place != "weft":
            words += ["--over", self.base(place)]
        return [*words, "--"]

    def launch(self, before, case, program, path, policy=None):
        name, *arguments = program
        line = ["mpiexec.mpich", "-n", case.ranks, self.dir / name, *(argument.format(path=path) for argument in arguments)]
        if not case.slow_network:
            return self.run(*before, *line)
        script = ["bash", "-c", SLOW_NETWORK, "delegates", SLOW_MBIT_PER_S]
        return self.run("unshare", "--net", *script, self.weft, self.dir, policy or "", self.options.delegates, *line)

    def once(self, place, case, arm):
        """Runs one arm on new files, and returns its speed in MiB/s."""
        path = self.base(place) / "file"
        plain = self.under(place)
        self.run(*plain, "sh", "-c", f"rm -rf {path}*" + (f" && mkdir {path}" if case.directory else ""))
        if case.prepare:
            self.launch(plain, case, case.prepare, path)
        os.sync()
        policy = arm if arm in POLICIES else None
        before = self.under(place, policy, case)
        said = self.launch(before, case, case.independent if arm == "independent" else case.program, path, policy)
        found = re.search(rf"{case.kind}(?:\+\w+)? ([0-9.]+) s", said)
        if not found or "WRONG" in said:
            sys.exit(f"delegates: {case.name}, {arm}, {place}: {said}")
        if case.check and "every byte is right" not in self.launch(plain, case, case.check, path):
            sys.exit(f"delegates: {case.name}, {arm}, {place}: wrong bytes after the run")
        size = re.search(r"([0-9.]+) MiB", said)
        steps = re.search(r"(\d+) steps of", said)
        return float(size[1]) * int(steps[1] if steps else 1) / float(found[1])


def measure(bench, case, place):
    options = bench.options
    arms = [*options.policies, "without"] + (["independent"] if case.independent else [])
    speeds = {arm: [] for arm in arms}
    for round in range(options.rounds):
        for arm in arms[round % len(arms):] + arms[: round % len(arms)]:
            print(f"# {case.name}, {place}, round {round + 1} of {options.rounds}, {arm}", file=sys.stderr)
            speeds[arm].append(bench.once(place, case, arm))
    return [{"case": case.name, "place": place, "ranks": case.ranks, "arm": arm, "target": case.target,
             "independent_target": case.independent_target, "median_mib_per_s": rounded(statistics.median(values)),
             "mib_per_s": [rounded(value) for value in values]} for arm, values in speeds.items()]


def rounded(value):
    return float(f"{value:.4g}")


def reached(row, against, target):
    """Returns the ratio of two medians as text, with the target and whether it was reached, and whether it was missed."""
    if against is None:
        return "", False
    ratio = row["median_mib_per_s"] / against["median_mib_per_s"]
    if not target:
        return f"{ratio:.2f}", False
    return f"{ratio:.2f} ({'at least' if ratio >= target else 'MISSED'} {target:g})", ratio < target


def shown(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def speed(row):
    """Returns the median speed with the lowest and highest one as text."""
    if not row:
        return ""
    return f"{shown(row['median_mib_per_s'])} ({shown(min(row['mib_per_s']))} to {shown(max(row['mib_per_s']))})"


def print_table(rows):
    """Prints the table, and returns the number of missed targets."""
    print("| program | over | ranks | policy | delegates, MiB/s | without | independent POSIX calls | delegates/without "
          "| delegates/independent |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    found = {(row["case"], row["place"], row["arm"]): row for row in rows}
    missed = 0
    for row in rows:
        if row["arm"] in ("without", "independent"):
            continue
        without, independent = (found.get((row["case"], row["place"], arm)) for arm in ("without", "independent"))
        first, first_missed = reached(row, without, row["target"])
        second, second_missed = reached(row, independent, row["independent_target"])
        missed += first_missed + second_missed
        print(f"| {row['case']} | {row['place']} | {row['ranks']} | {row['arm']} | {speed(row)} | {speed(without)} "
              f"| {speed(independent)} | {first} | {second} |")
    return missed


def load():
    return " ".join(pathlib.Path("/proc/loadavg").read_text().split()[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delegates", type=int, default=2)
    parser.add_argument("--policies", default="hashed", help="hashed, first-touch; separated by commas")
    parser.add_argument("--cases", default="", help="parts of names of cases, separated by commas")
    parser.add_argument("--places", default=",".join(PLACES))
    parser.add_argument("--dir", default="target", help="directory on the disk to measure")
    parser.add_argument("--no-distributed", action="store_true", help="start no distributed file system")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args()
    options.policies = [policy for policy in options.policies.split(",") if policy]
    if unknown := set(options.policies) - set(POLICIES):
        parser.error(f"unknown policies {sorted(unknown)}; there are {', '.join(POLICIES)}")
    os.makedirs(options.dir, exist_ok=True)
    # Also a terminated run stops what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = [case for case in cases() if any(part in case.name for part in options.cases.split(","))]
    with tempfile.TemporaryDirectory(prefix="delegates.", dir=options.dir) as directory:
        bench = Bench(options, pathlib.Path(directory).resolve())
        print(f"# {PROCESSORS} processors, {' '.join(os.uname()[0:3:2])}, {options.delegates} delegates, load {load()} at the start",
              file=sys.stderr)
        rows = []
        try:
            bench.start()
            for case in chosen:
                for place in case.places:
                    if place not in options.places.split(","):
                        continue
                    if not bench.base(place) or (case.slow_network and os.geteuid() != 0):
                        print(f"# skipped without root: {case.name}, {place}", file=sys.stderr)
                        continue
                    measured = measure(bench, case, place)
                    rows += measured
                    if options.json:
                        print("\n".join(json.dumps(row) for row in measured), flush=True)
        finally:
            bench.stop()
    missed = 0 if options.json else print_table(rows)
    print(f"# load {load()} at the end", file=sys.stderr)
    sys.exit(1 if options.check and missed else 0)


if __name__ == "__main__":
    main()
