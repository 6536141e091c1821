# As root, in the directory argv[1]: what another user may do to programs and to files with set-id bits. Prints "well" or fails.
import ctypes, os, shutil, subprocess, sys

os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
os.chmod(".", 0o777)
USER = 4711
libc = ctypes.CDLL(None, use_errno=True)


def as_user(work):
    """Runs `work` as another user, and returns its answer."""
    def other():
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        return work()
    return child(other)


def runs():
    try:
        return subprocess.run(["./program"], stdout=subprocess.DEVNULL).returncode == 0
    except PermissionError:
        return False


def reads():
    try:
        with open("program", "rb") as f:
            return len(f.read()) > 0
    except PermissionError:
        return False


def programs():
    shutil.copyfile("/bin/true", "program")
    for owner, mode, may_run, may_read in [
        (0, 0o711, True, False), (0, 0o111, True, False), (0, 0o755, True, True), (0, 0o744, False, True), (0, 0o700, False, False),
        (USER, 0o100, True, False), (USER, 0o077, False, False), (USER, 0o500, True, True),
    ]:
        os.chown("program", owner, owner)
        os.chmod("program", mode)
        assert as_user(lambda: (runs(), reads())) == (may_run, may_read), (owner, oct(mode))


def allocate(mode):
    def change(fd):
        assert libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(4096)) == 0, ctypes.get_errno()
    return change


PUNCH_KEEPING_SIZE, ZERO_RANGE = 3, 0x10
CHANGES = {
    "write": lambda fd: os.write(fd, b"x"),
    "writev": lambda fd: os.pwritev(fd, [b"x"], 5),
    "ftruncate": lambda fd: os.ftruncate(fd, 100),
    "truncate": lambda fd: os.truncate("file", 100),
    "fallocate": allocate(0),
    "punch": allocate(PUNCH_KEEPING_SIZE),
    "zero": allocate(ZERO_RANGE),
}


def set_ids():
    for name, change in CHANGES.items():
        for mode in (0o6666, 0o6676, 0o6777, 0o4766, 0o2676):
            for length in (100, 100_000):
                with open("file", "wb") as f:
                    f.write(b"a" * length)

                # The bits are set after the open, which must not matter.
                ready, go = os.pipe(), os.pipe()

                def opened_before():
                    fd = os.open("file", os.O_WRONLY)
                    os.write(ready[1], b"x")
                    os.read(go[0], 1)
                    change(fd)
                    os.close(fd)

                os.chown("file", 0, 0)
                os.chmod("file", 0o666)
                pid = os.fork()
                if pid == 0:
                    as_user(opened_before)
                    os._exit(0)
                os.read(ready[0], 1)
                os.chmod("file", mode)
                os.write(go[1], b"x")
                os.waitpid(pid, 0)
                for end in ready + go:
                    os.close(end)
                left = os.stat("file").st_mode & 0o7777
                assert left == mode & 0o777, (name, oct(mode), length, oct(left))
                os.unlink("file")
    # Root changes no bits.
    with open("file", "wb") as f:
        f.write(b"a")
    os.chmod("file", 0o6777)
    with open("file", "r+b") as f:
        f.write(b"b")
    assert os.stat("file").st_mode & 0o7777 == 0o6777
    # A change of the owner clears them, even to the same one.
    for mode, left in (0o6777, 0o777), (0o6666, 0o2666):
        os.chmod("file", mode)
        os.chown("file", -1, -1)
        assert os.stat("file").st_mode & 0o7777 == left, oct(mode)
    os.unlink("file")


for part in sys.argv[2:]:
    globals()[part]()
print("well")
