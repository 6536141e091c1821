#!/usr/bin/env python3
"""Runs a test command isolated from the user's settings, and fails if the command leaves anything behind.

usage: scripts/isolated.py [--wait SECONDS] COMMAND [ARGUMENT...]

The command starts with an empty home directory, an empty temporary directory, and the environment, limits and (for
root) accounts of a base system (see base_system.py). Of Weft's variables it gets those that select tests (see KEPT).
Leftovers are processes, mounts, network namespaces, shared memory, and files in both directories, in /tmp, below the
target directory and in the source tree. The script names leftovers, kills processes, removes mounts and both
directories, and exits with 1. Without leftovers it exits with the command's code.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import base_system  # noqa: E402

# Variables that select tests or their seeds; all other variables of Weft would change the tests.
KEPT = ("WEFT_BLESS", "WEFT_DARSHAN_", "WEFT_FUZZ_", "WEFT_PLACEMENT_SEEDS", "WEFT_SKIP_", "WEFT_TEST_")
# Name prefixes of files that Weft and MPI create in shared directories.
SHARED = ("weft", "mpich", "ompi", "openmpi", "pmix", "vader_segment", "sm_segment", "psm")
# Seconds that processes get to exit: for unmounting, and for servers that flush before they exit.
WAIT = 20.0

PR_SET_CHILD_SUBREAPER = 36
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)
tree = pathlib.Path(__file__).resolve().parent.parent


def environment(home, temporary):
    """Returns the environment of the command."""
    given = os.environ
    old_home = given.get("HOME", "/nonexistent")
    env = base_system.environment(given)
    env.update({name: value for name, value in given.items() if name.startswith(KEPT)})
    env.update(HOME=str(home), TMPDIR=str(temporary))
    # The tools keep their installation directories.
    env.setdefault("CARGO_HOME", f"{old_home}/.cargo")
    env.setdefault("RUSTUP_HOME", f"{old_home}/.rustup")
    data = given.get("XDG_DATA_HOME") or f"{old_home}/.local/share"
    darshan = pathlib.Path(data, "weft/darshan")
    if "WEFT_DARSHAN_LIB" not in env and darshan.is_dir():
        env["WEFT_DARSHAN_LIB"] = str(darshan)
    env.setdefault("WEFT_TEST_MPICH", str(pathlib.Path(data, "weft/mpich")))
    return env


def descendants():
    """Returns all descendant processes as {pid: command line}, including orphans, which this process adopts."""
    parents, lines = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue  # exited meanwhile
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(entry)] = int(parent)
            lines[int(entry)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    found, more = {}, [os.getpid()]
    while more:
        parent = more.pop()
        for pid in [pid for pid, its in parents.items() if its == parent]:
            found[pid] = lines[pid]
            more.append(pid)
    return found


def names(directory, prefixes=("",)):
    """Returns the entries of a directory whose names begin with one of `prefixes`."""
    try:
        entries = os.listdir(directory)
    except OSError:
        return set()
    return {f"{directory}/{entry}" for entry in entries if entry.startswith(prefixes)}


def alive(pid):
    return os.path.exists(f"/proc/{pid}")


def of_another_run(path):
    """Returns whether a name contains the id of a running process: `weft-tests-PID-…`, `weft-PID-a`."""
    return any(part.isdigit() and alive(part) for part in os.path.basename(path).split("-"))


def mounts():
    """Returns the mount points."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split(" ")[4].encode().decode("unicode_escape") for line in lines}


def untracked():
    """Returns the untracked files of the source tree."""
    command = ["git", "-C", str(tree), "status", "--porcelain", "--untracked-files=all"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {f"{tree}/{line[3:]}" for line in lines if line.startswith("??")}


def shared(target):
    """Returns the resources outside the directories of the command, by kind."""
    return {
        "network namespace": names("/run/netns", ("weft-",)),
        "shared memory": names("/dev/shm", SHARED),
        "file": names("/tmp", SHARED) | names(str(target / "tmp")),
        "file in the source tree": untracked(),
    }


def remove_memory_of_killed_mpich(before):
    """Removes shared memory of MPICH that no process maps. MPICH leaves it when a job is aborted or killed, as in tests."""
    mapped = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped.update(line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "/dev/shm/" in line)
        except OSError:
            pass  # the process has exited, or belongs to another user
    for path in names("/dev/shm", ("mpich_shm_",)) - before["shared memory"] - mapped:
        pathlib.Path(path).unlink(missing_ok=True)


def left(root, before, target):
    """Returns a line for each leftover."""
    remove_memory_of_killed_mpich(before)
    found = [f"process {pid}: {line}" for pid, line in descendants().items()]
    found += [f"mount: {point}" for point in mounts() if point.startswith(f"{root}/")]
    for below in ("home", "tmp"):
        found += [f"file: {path}" for path in names(str(root / below))]
    for kind, now in shared(target).items():
        new = (path for path in now - before[kind] if path != str(root) and not of_another_run(path))
        found += [f"{kind}: {path}" for path in new]
    return sorted(found)


def remove(root):
    """Kills or removes all leftovers."""
    while found := descendants():
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        time.sleep(0.01)
    reap()  # processes that have just exited
    for point in sorted((point for point in mounts() if point.startswith(f"{root}/")), reverse=True):
        if libc.umount2(point.encode(), MNT_DETACH) != 0:
            subprocess.run(["fusermount3", "-u", "-z", point], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(root, ignore_errors=True)


def reap(child=None):
    """Reaps exited processes. Returns the exit code of `child` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def wait_for(child):
    """Waits for the command and reaps every orphan meanwhile, so that none stays a zombie."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def main():
    arguments, wait = sys.argv[1:], WAIT
    if arguments[:1] == ["--wait"] and len(arguments) > 1:
        wait, arguments = float(arguments[1]), arguments[2:]
    if not arguments:
        sys.exit(__doc__)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", tree / "target")).absolute()
    before = shared(target)
    # In /tmp regardless of TMPDIR, because the path of a Unix socket has at most 107 bytes.
    root = pathlib.Path(tempfile.mkdtemp(prefix=f"weft-tests-{os.getpid()}-", dir="/tmp"))
    root.chmod(0o755)
    (root / "home").mkdir(mode=0o700)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    base_system.limits()
    if os.geteuid() == 0:
        try:
            base_system.enter(root / "base")
        except OSError as error:
            print(f"weft: {error.filename}: {error.strerror}: the tests see all accounts of this machine", file=sys.stderr)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"weft: prctl: {os.strerror(ctypes.get_errno())}; Linux 3.4 or newer is needed")
    # A terminal interrupts the command as well; its leftovers are removed in that case too.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # The reference is kept, because Python would otherwise reap a command that has already exited.
        command = subprocess.Popen(
            arguments,
            env=environment(root / "home", root / "tmp"),
            # Ignored under nohup, where it would not end the test programs.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
    except OSError as error:
        remove(root)
        sys.exit(f"weft: {arguments[0]}: {error.strerror}")
    signal.signal(signal.SIGTERM, lambda *_: os.kill(command.pid, signal.SIGTERM))
    code = wait_for(command.pid)
    end = time.monotonic() + wait
    while (found := left(root, before, target)) and time.monotonic() < end:
        reap()
        time.sleep(0.1)
    remove(root)
    if found:
        print(f"weft: {arguments[0]}: left behind {wait:g} seconds after it exited:", file=sys.stderr)
        for line in found:
            print(f"  {line}", file=sys.stderr)
    elif code == 0:
        print("weft: no process, mount, network namespace, shared memory or file was left behind", file=sys.stderr)
    sys.exit(128 - code if code < 0 else code or bool(found))


main()
