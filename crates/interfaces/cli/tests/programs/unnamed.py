"""Checks of files without a name, in a new directory with the name of the first argument."""
import ctypes
import errno
import fcntl
import os
import signal
import sys
import tempfile
import time

top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)


def at(name):
    return f"{top}/{name}"


def unnamed(flags=os.O_RDWR, mode=0o600):
    return os.open(top, os.O_TMPFILE | flags, mode)


def link(fd, name):
    # With a directory, which the absolute path makes irrelevant, Python calls linkat.
    os.link(f"/proc/self/fd/{fd}", at(name), src_dir_fd=0, follow_symlinks=True)


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise SystemExit(f"line {sys._getframe(1).f_lineno}: no error {errno.errorcode[number]}")


def inodes():
    space = os.statvfs(top)
    return space.f_files - space.f_ffree


def wait_for_inodes(count):
    deadline = time.monotonic() + 30
    while inodes() != count:
        assert time.monotonic() < deadline, f"{inodes()} inodes, not {count}"
        time.sleep(0.02)


os.umask(0o027)
os.mkdir(top)
before = inodes()
fd = unnamed(mode=0o666)
st = os.fstat(fd)
assert (st.st_nlink, st.st_mode, st.st_uid) == (0, 0o100640, os.geteuid()), st
assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_TMPFILE == os.O_TMPFILE
assert os.pwrite(fd, b"unnamed " * 40_000, 10) == 320_000
assert os.pread(fd, 20, 0) == bytes(10) + b"unnamed un"
os.ftruncate(fd, 100_000)
assert os.fstat(fd).st_size == 100_000
assert os.listdir(top) == []
wait_for_inodes(before + 1)
os.close(fd)
wait_for_inodes(before)

# A first name, and another one.
fd = unnamed()
os.write(fd, b"before")
link(fd, "one")
st = os.fstat(fd)
assert st.st_nlink == 1 and os.stat(at("one")).st_ino == st.st_ino
os.write(fd, b" and after")
link(fd, "two")
assert os.fstat(fd).st_nlink == 2
os.close(fd)
assert open(at("two"), "rb").read() == b"before and after"
os.unlink(at("one"))
assert open(at("two"), "rb").read() == b"before and after"

# Names that it does not get.
fd = unnamed()
fails(errno.EEXIST, link, fd, "two")
fails(errno.ENOENT, link, fd, "missing/name")
assert os.fstat(fd).st_nlink == 0
link(fd, "three")
os.close(fd)
fd = unnamed(os.O_RDWR | os.O_EXCL)
fails(errno.ENOENT, link, fd, "four")
os.close(fd)
fd = os.open(at("three"), os.O_RDWR)
os.unlink(at("three"))
fails(errno.ENOENT, link, fd, "four")
os.close(fd)
fd = unnamed()
link(fd, "four")
os.unlink(at("four"))
fails(errno.ENOENT, link, fd, "four")
os.close(fd)
assert os.listdir(top) == ["two"]

# Other opens.
fails(errno.EINVAL, unnamed, os.O_RDONLY)
fails(errno.EINVAL, unnamed, os.O_RDWR | os.O_CREAT)
fails(errno.ENOTDIR, os.open, at("two"), os.O_TMPFILE | os.O_RDWR)
fails(errno.ENOENT, os.open, at("missing"), os.O_TMPFILE | os.O_RDWR)
fd = unnamed(os.O_WRONLY | os.O_APPEND)
fails(errno.EBADF, os.read, fd, 1)
os.write(fd, b"1")
os.write(fd, b"2")
assert libc.linkat(fd, b"", -100, at("by-descriptor").encode(), 0x1000) == 0, ctypes.get_errno()
os.close(fd)
assert open(at("by-descriptor")).read() == "12"
with tempfile.TemporaryFile(dir=top) as file:
    file.write(b"library")
    file.seek(0)
    assert file.read() == b"library"
    assert sorted(os.listdir(top)) == ["by-descriptor", "two"]

# A child names its parent's file.
fd = unnamed()
os.write(fd, b"inherited")
child = os.fork()
if child == 0:
    link(fd, "by-child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.close(fd)
assert open(at("by-child"), "rb").read() == b"inherited"

# A killed program leaves nothing.
for name in os.listdir(top):
    os.unlink(at(name))
wait_for_inodes(before)
ready, told = os.pipe()
child = os.fork()
if child == 0:
    fd = unnamed()
    os.write(fd, bytes(100_000))
    os.write(told, b"x")
    signal.pause()
assert os.read(ready, 1) == b"x"
wait_for_inodes(before + 1)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
wait_for_inodes(before)
print("well")
