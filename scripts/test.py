#!/usr/bin/env python3
"""Runs all tests and counts those that passed, failed and were skipped; `make test` calls it.

usage: scripts/test.py [COMMAND [ARGUMENT...]]

Runs the commands of `make test`, or one COMMAND in isolation. Every command runs, and every test program of a command,
even if others failed. The end of the output names failed tests, and skipped tests with their reasons. Its last line reads
"N passed, N failed, N skipped". The exit code is 1 if a test failed. Where the variable CI is set, it is also 1 if a
test was skipped that root on Debian 12 can run: every one except measurements (#[ignore]) and those that the machine's
kernel, file systems or processors do not allow.
"""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

tree = pathlib.Path(__file__).resolve().parent.parent
cargo = [*shlex.split(os.environ.get("CARGO", "cargo")), "test", "--no-fail-fast"]
isolated = [str(tree / "scripts/isolated.py")]
# Commands with a flag whether they isolate their tests themselves: pip needs the user's home.
ALL = [
    ([*isolated, *cargo, "--workspace", "--lib", "--bins", "--tests"]),
    ([*isolated, *cargo, "--workspace", "--doc"]),
    ([*isolated, *cargo, "-p", "weft-twin", "-p", "weft-store", "-p", "weft-client",
      "--features", "weft-twin/mutants,weft-store/mutants,weft-client/mutants",
      "--test", "search_mutants", "--test", "sealed_reads", "--test", "compressed", "--test", "replicas"]),
    ([*isolated, *cargo, "-p", "weft-client", "-p", "weft-server", "--features", "weft-client/mutants,weft-server/mutants",
      "--test", "all", "seeded_bugs"]),
    # Isolates pytest itself, because pip needs the user's home.
    (["make", "--no-print-directory", "python-test", "PYTHON_PROFILE=debug"]),
]

# Output of cargo, of the test harness of Rust, and of pytest. Benchmarks have no harness: cargo names those that fail.
RUNNING = re.compile(r"^ +Running (?!benches/).*\((?:\S*/)?([^/\s]+)-[0-9a-f]{16}\)$")
BENCHMARK = re.compile(r"^ +Running benches/")
BENCHMARK_FAILED = re.compile(r"^error: test failed, to rerun pass `.*--bench (\S+)`$")
DOCS = re.compile(r"^ +Doc-tests (\S+)$")
TEST = re.compile(r"^test (.+) \.\.\. (FAILED|ignored)(?:, (.*))?$")
RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
PYTEST = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in [0-9.]+s")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)")


class Counts:
    """Results of all commands."""

    def __init__(self):
        self.passed = 0
        self.failed = []  # names
        self.skipped = []  # (name, reason, whether root on Debian 12 could run it)


class Output:
    """Reads the output of one command, line by line."""

    def __init__(self):
        self.passed, self.failed, self.ignored, self.of_pytest = 0, [], [], 0
        self.program = None  # whose result is still missing

    def line(self, line):
        if found := RUNNING.match(line) or DOCS.match(line):
            self.ended_without_result()
            self.program = found[1]
        elif BENCHMARK.match(line):
            self.ended_without_result()
        elif found := BENCHMARK_FAILED.match(line):
            self.failed.append(f"{found[1]}: the benchmark failed")
        elif found := TEST.match(line):
            name = f"{self.program} {found[1]}"
            if found[2] == "FAILED":
                self.failed.append(name)
            else:
                self.ignored.append((name, found[3] or "on request only"))
        elif found := RESULT.search(line):
            self.passed += int(found[1])
            self.program = None
        elif found := PYTEST.match(line):
            counts = {kind.rstrip("s"): int(count) for count, kind in (part.split() for part in found[1].split(", "))}
            self.passed += counts.get("passed", 0)
            self.of_pytest += 1
        elif found := PYTEST_FAILED.match(line):
            self.failed.append(found[1])

    def ended_without_result(self):
        if self.program is not None:
            self.failed.append(f"{self.program}: the test program ended without a result")
        self.program = None


def run(command, counts, file):
    """Runs a command, shows its output and adds its results to `counts`. Returns whether it was interrupted."""
    shown = " ".join(command).replace(f"{tree}/", "")
    print(f"weft: {shown}", flush=True)
    began = time.monotonic()
    file.write_text("")
    try:
        child = subprocess.Popen(
            command, cwd=tree, env=os.environ | {"WEFT_TEST_SKIPPED": str(file)}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
    except OSError as error:
        counts.failed.append(f"{shown}: {error.strerror}")
        return False
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    output = Output()
    for line in child.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        output.line(line.decode(errors="replace").rstrip("\r\n"))
    code = child.wait()
    output.ended_without_result()
    records = {}
    for record in file.read_text().splitlines():
        kind, program, test, reason = record.split("\t", 3)
        records.setdefault((program, test), []).append((kind, reason))
    for (program, test), reasons in records.items():
        name = f"{program} {test}"
        if name not in output.failed:
            # The harness of Rust counts a test that returned early as passed; pytest does not.
            output.passed -= program != "pytest"
            setup = any(kind == "setup" for kind, _ in reasons)
            counts.skipped.append((name, "; ".join(dict.fromkeys(reason for _, reason in reasons)), setup))
    counts.skipped += [(name, reason, False) for name, reason in output.ignored]
    counts.passed += output.passed
    if code != 0 and not output.failed:
        output.failed.append(f"{shown}: exit code {code}, with no failed test: see its output")
    counts.failed += output.failed
    print(f"weft: {shown}: {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
    return code in (-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    commands = [[*isolated, *sys.argv[1:]]] if sys.argv[1:] else list(ALL)
    counts = Counts()
    if not sys.argv[1:] and os.environ.get("WEFT_SKIP_PYTHON"):
        commands.pop()
        counts.skipped.append(("python/tests", "WEFT_SKIP_PYTHON is set", True))
    # A terminal interrupts the command as well, which ends in order; the results so far are shown.
    signal.signal(signal.SIGINT, lambda *_: None)
    with tempfile.TemporaryDirectory(prefix=f"weft-counts-{os.getpid()}-", dir="/tmp") as room:
        for number, command in enumerate(commands):
            if run(command, counts, pathlib.Path(room, "skipped")):
                rest = len(commands) - number - 1
                counts.failed.append(f"interrupted; {rest} commands did not run" if rest else "interrupted")
                break
    print()
    for name in counts.failed:
        print(f"weft: failed: {name}")
    for name, reason, _ in counts.skipped:
        print(f"weft: skipped: {name}: {reason}")
    if counts.passed + len(counts.failed) + len(counts.skipped) == 0:
        counts.failed.append("no test ran")
        print("weft: failed: no test ran")
    needless = sum(setup for *_, setup in counts.skipped)
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    if needless and in_ci:
        print(f"weft: CI: {needless} skipped tests that root on Debian 12 can run; give them what their reasons name")
    print(f"{counts.passed} passed, {len(counts.failed)} failed, {len(counts.skipped)} skipped", flush=True)
    return int(bool(counts.failed) or (in_ci and needless > 0))


if __name__ == "__main__":
    sys.exit(main())
