#!/usr/bin/env python3
"""Unmodified AI and data programs on Weft, compared with the same programs on a local directory; `make ai` calls it.

usage: scripts/ai.py --weft COMMAND [--only WORD,...] [--interfaces run,mount,url] [--json FILE]

Each case of scripts/ai/ writes files in one process and reads them in another: in a local directory, by the preload
library (weft run), on a mount, and where the program takes URLs, by weft://. What is read must equal what is read
locally. Prints a table; a refusal that the documents name counts as refused. Exits with 1 if a case failed.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

tree = pathlib.Path(__file__).resolve().parent.parent
programs = tree / "scripts/ai"
# Seconds of one process.
LIMIT = 300
# Refusals that the reference names, by program, case and interface: a part of the message, and the page.
REFUSALS = {}


class Cluster:
    """An embedded cluster with a mount."""

    def __init__(self, weft, room):
        self.weft, self.room = weft, room
        self.file = room / "state/cluster.toml"
        self.mount = room / "mount"
        self.mounted = False
        self.call("run", "--state", str(room / "state"), "--", "true")

    def call(self, *words):
        subprocess.run([self.weft, *words], check=True, stdin=subprocess.DEVNULL, timeout=LIMIT)

    def start_mount(self):
        self.mount.mkdir()
        self.call("--cluster", str(self.file), "mount", "--log", str(self.room / "mount.log"), str(self.mount))
        self.mounted = True

    def end(self):
        if self.mounted:
            subprocess.run(["fusermount3", "-u", "-z", "-q", str(self.mount)], check=False)
        subprocess.run([self.weft, "--cluster", str(self.file), "stop", "--kill"], check=False, stdout=subprocess.DEVNULL)

    def place(self, interface, name):
        """Returns the prefix of commands, and the directory of a case as the interface names it."""
        if interface == "local":
            return [], self.room / "local" / name
        if interface == "run":
            return [self.weft, "--cluster", str(self.file), "run", "--"], f"/weft/run/{name}"
        if interface == "mount":
            return [], self.mount / "mount" / name
        return [], f"weft:///url/{name}"


def run(cluster, interface, words):
    """Runs a process. Returns its exit code, output and errors."""
    env = os.environ | {"WEFT_CLUSTER": str(cluster.file), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(cluster.room)}
    if interface == "mount" or interface == "local":
        env.pop("WEFT_CLUSTER")
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        return 124, "", f"no end within {LIMIT} s: {error.cmd[-3:]}"
    return done.returncode, done.stdout, done.stderr


def outcome(cluster, program, case, interface, name):
    """Writes and reads the files of a case. Returns what was read, or None, and the errors."""
    prefix, place = cluster.place(interface, name)
    make = [*prefix, "mkdir", "-p", str(place)]
    if interface == "url":
        make = [cluster.weft, "--cluster", str(cluster.file), "mkdir", "-p", f"/weft/url/{name}"]
    python = [*prefix, sys.executable, str(program)]
    for words in (make, [*python, "write", case, str(place)], [*python, "read", case, str(place)]):
        code, said, errors = run(cluster, interface, words)
        if code != 0:
            what = "mkdir" if words is make else words[-3]
            return None, f"{what}: exit code {code}: {errors.strip()}"
    return said, ""


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--weft", required=True, help="the command under test")
    options.add_argument("--only", default="", help="programs whose names contain one of these words")
    options.add_argument("--interfaces", default="run,mount,url")
    options.add_argument("--json", help="file for the results")
    given = options.parse_args()
    words = [word for word in given.only.split(",") if word]
    weft = str(pathlib.Path(given.weft).resolve())
    interfaces = given.interfaces.split(",")
    # The cluster and the mount end in that case as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    room = pathlib.Path(tempfile.mkdtemp(prefix="ai"))  # short: paths of sockets
    cluster = Cluster(weft, room)
    rows, failures = [], []
    try:
        if "mount" in interfaces:
            cluster.start_mount()
        print(f"{'package':12} {'version':10} {'case':32} {'interface':10} {'result':8} {'seconds':>7}", flush=True)
        for program in sorted(programs.glob("*_*.py")):
            if words and not any(word in program.stem for word in words):
                continue
            package = program.stem.partition("_")[0]
            if package == "torch" and os.environ.get("WEFT_SKIP_TORCH"):
                print("weft: skipped: torch: WEFT_SKIP_TORCH is set", flush=True)
                continue
            code, said, errors = run(cluster, "local", [sys.executable, str(program), "list"])
            if code != 0:
                failures.append((package, "", "", errors.strip().splitlines()[-1]))
                print(f"{package:12} cannot be imported: {failures[-1][3]}", flush=True)
                continue
            found = json.loads(said)
            for number, (case, of_case) in enumerate(found["cases"].items()):
                name = f"{program.stem}-{number}"
                expected, errors = outcome(cluster, program, case, "local", name)
                if expected is None:
                    failures.append((package, case, "local", errors))
                for interface in [one for one in interfaces if one in of_case and expected is not None]:
                    began = time.monotonic()
                    read, errors = outcome(cluster, program, case, interface, name)
                    refusal = REFUSALS.get((package, case, interface))
                    if read == expected:
                        result = "passed"
                    elif read is None and refusal is not None and refusal[0] in errors:
                        result = "refused"
                    else:
                        result = "failed"
                        failures.append((package, case, interface, errors or difference(expected, read)))
                    row = (package, found["version"], case, interface, result, round(time.monotonic() - began, 1))
                    rows.append(row)
                    print("{:12} {:10} {:32} {:10} {:8} {:7.1f}".format(*row), flush=True)
                    if result == "failed":
                        print(f"    {failures[-1][3].splitlines()[-1]}", flush=True)
    finally:
        cluster.end()
        shutil.rmtree(room, ignore_errors=True)
    for package, case, interface, errors in failures:
        print(f"\n--- {package}, {case}, {interface}\n{errors[-3000:]}")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps({"rows": rows, "failures": failures}, indent=1))
    count = {result: sum(row[4] == result for row in rows) for result in ("passed", "refused")}
    for (package, case, interface), (_, page) in REFUSALS.items():
        if (package, case, interface, "refused") in [(row[0], row[2], row[3], row[4]) for row in rows]:
            print(f"weft: refused as documented: {package}, {case}, {interface}: {page}")
    print(f"\n{count['passed']} passed, {len(failures)} failed, {count['refused']} refused as documented")
    return int(bool(failures) or not rows)


def difference(expected, read):
    """Returns the first lines that differ."""
    pairs = zip(expected.splitlines(), read.splitlines())
    lines = [f"expected {one.strip()}, found {other.strip()}" for one, other in pairs if one != other]
    return "other content than locally: " + ("; ".join(lines[:5]) or "another length")


if __name__ == "__main__":
    sys.exit(main())
