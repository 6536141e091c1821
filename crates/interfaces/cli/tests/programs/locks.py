# Locks of all kinds in the directory argv[1]: whom they exclude, what ends them, whom they name. Prints "well" or fails.
import fcntl, os, signal, struct, subprocess, sys, time

os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
SH, EX, UN, NB = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN, fcntl.LOCK_NB
R, W, U = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


def record(fd, command, kind, start=0, length=10):
    """Returns kind and process of the answer."""
    answer = fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, start, length, 0))
    kind, _, _, _, pid = struct.unpack("hhqqi4x", answer)
    return kind, pid


def takes(lock, *arguments):
    try:
        lock(*arguments)
        return True
    except BlockingIOError:
        return False


def soon(check):
    """Repeats a check: under `weft run`, locks end a little after a kill, and after the last close by several processes."""
    until = time.monotonic() + 20
    while not check():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def held_by_child(lock):
    """Starts a process that takes a lock and waits for its end by a signal."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock()
        os.write(w, b"x")
        signal.pause()
    os.close(w)
    assert os.read(r, 1) == b"x", "the child has its lock"
    os.close(r)
    return pid


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def opened(name="f", flags=os.O_RDWR | os.O_CREAT):
    return os.open(name, flags, 0o644)


def flocks():
    probe = opened()
    for i in range(150):
        fd = opened()
        fcntl.flock(fd, EX)
        assert not takes(fcntl.flock, probe, EX | NB), f"open file {i} holds its lock"
        if i % 2:
            fcntl.flock(fd, UN)
        os.close(fd)
        assert takes(fcntl.flock, probe, EX | NB), f"closed file {i} holds none"
        fcntl.flock(probe, UN)
    fd = opened()
    fcntl.flock(fd, EX)
    copy = os.dup(fd)
    os.close(fd)
    assert not takes(fcntl.flock, probe, EX | NB), "a duplicate holds the lock"
    assert child(lambda: os.close(copy)) is None
    assert not takes(fcntl.flock, probe, EX | NB), "the close of a forked process keeps it"
    assert takes(record, copy, fcntl.F_SETLK, W, 0, 0), "of another kind"
    os.close(copy)
    assert soon(lambda: takes(fcntl.flock, probe, EX | NB)), "the last duplicate is closed"
    fcntl.flock(probe, UN)
    one, other = opened(), opened()
    for fd in (one, other):
        fcntl.flock(fd, SH)
    assert not takes(fcntl.flock, one, EX | NB), "another has a shared lock"
    assert takes(fcntl.flock, other, EX | NB), "a conversion that failed has lost its lock"
    for fd in (one, other):
        os.close(fd)
    pid = held_by_child(lambda: fcntl.flock(opened(), EX))
    assert not takes(fcntl.flock, probe, EX | NB), "another process holds it"
    end(pid)
    assert soon(lambda: takes(fcntl.flock, probe, EX | NB)), "a killed process holds none"
    os.close(probe)


def open_file_locks():
    a, b = opened(), opened()
    record(a, fcntl.F_OFD_SETLK, R, 100)
    record(a, fcntl.F_OFD_SETLK, W, 200)
    assert record(b, fcntl.F_OFD_GETLK, W, 200) == (W, -1), "of no process"
    assert not takes(record, b, fcntl.F_OFD_SETLK, W, 100)
    assert not takes(record, b, fcntl.F_SETLK, W, 200), "excludes locks of processes"
    os.close(opened(flags=os.O_RDONLY))
    assert record(b, fcntl.F_OFD_GETLK, W, 200)[0] == W, "another descriptor was closed"
    copy = os.dup(a)
    os.close(a)
    assert record(b, fcntl.F_OFD_GETLK, W, 200)[0] == W, "a duplicate is open"
    for i in range(50):
        os.close(copy)
        assert record(b, fcntl.F_OFD_GETLK, W, 200)[0] == U, f"the last duplicate is closed, {i}"
        copy = opened()
        assert takes(record, copy, fcntl.F_OFD_SETLK, W, 200)
    record(copy, fcntl.F_OFD_SETLK, U, 200)
    assert record(b, fcntl.F_OFD_GETLK, W, 200)[0] == U, "given back"
    os.close(copy)
    pid = held_by_child(lambda: record(opened(), fcntl.F_OFD_SETLK, W, 300))
    assert record(b, fcntl.F_OFD_GETLK, W, 300) == (W, -1)
    end(pid)
    assert soon(lambda: takes(record, b, fcntl.F_OFD_SETLK, W, 300)), "a killed process holds none"
    os.close(b)


def process_locks():
    def others_see():
        return child(lambda: record(opened(), fcntl.F_GETLK, W))

    a = opened()
    record(a, fcntl.F_SETLK, W)
    assert others_see() == (W, os.getpid()), others_see()
    os.close(os.dup(a))
    assert others_see()[0] == U, "a duplicate was closed"
    record(a, fcntl.F_SETLKW, W)
    os.close(opened(flags=os.O_RDONLY))
    assert others_see()[0] == U, "another descriptor was closed"
    record(a, fcntl.F_SETLK, W)
    child(lambda: os.close(a))
    assert others_see()[0] == W, "a forked process has no part in it"
    assert not child(lambda: takes(record, a, fcntl.F_SETLK, W)), "and does not own it"
    record(a, fcntl.F_SETLK, U)
    for lock in (lambda: record(opened(), fcntl.F_SETLK, W), lambda: record(a, fcntl.F_SETLK, W)):
        pid = held_by_child(lock)
        assert record(a, fcntl.F_GETLK, W) == (W, pid), "names the child"
        end(pid)
        assert soon(lambda: record(a, fcntl.F_GETLK, W)[0] == U), "a killed process holds none"
    os.close(a)


def executed():
    """A lock of a process survives its execve, unless that closes the file."""
    hold = "import sys; print(1, flush=True); sys.stdin.read()"
    for inherited in (True, False):
        def lock():
            mine = opened("g")
            record(mine, fcntl.F_SETLK, W)
            os.set_inheritable(mine, inherited)
        p = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lock, close_fds=False)
        p.stdout.readline()
        # Not earlier: the new program would close it, and lose its locks.
        fd = opened("g")
        seen = record(fd, fcntl.F_GETLK, W)
        assert seen == ((W, p.pid) if inherited else (U, seen[1])), (inherited, seen)
        p.communicate(b"")
        assert record(fd, fcntl.F_GETLK, W)[0] == U, "it has ended"
        os.close(fd)


def counted():
    """Three processes count in a small file."""
    with open("counter", "w") as f:
        f.write("0")

    def count():
        for _ in range(60):
            with open("counter", "r+") as f:
                fcntl.flock(f, EX)
                n = int(f.read())
                f.seek(0)
                f.write(str(n + 1))
                f.truncate()
                f.flush()
                fcntl.flock(f, UN)
        os._exit(0)

    pids = []
    for _ in range(3):
        pids.append(os.fork())
        if pids[-1] == 0:
            try:
                count()
            finally:
                os._exit(1)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    with open("counter") as f:
        n = f.read()
    assert n == "180", n


for part in sys.argv[2:]:
    globals()[part]()
print("well")
