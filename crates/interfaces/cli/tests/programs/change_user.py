"""Changes its user in every way, and prints what the new user may do in the directory of the first argument."""
import ctypes, errno, fcntl, os, subprocess, sys, threading

top, ADA, BOB, TEAM = sys.argv[1], 4711, 4712, 4800
libc = ctypes.CDLL(None, use_errno=True)
KEEP = ctypes.c_uint(0xFFFFFFFF)
# Numbers of system calls that the C library does not make for one thread only.
MACHINE = os.uname().machine
SETRESUID, SETFSUID, SETGROUPS = {"x86_64": (117, 122, 116), "aarch64": (147, 151, 159)}[MACHINE]


def tried(what, work):
    try:
        result = work()
        print(what, result if isinstance(result, (str, int, bytes, list, tuple)) else "ok")
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def text(path, dir=None):
    fd = os.open(path, os.O_RDONLY, dir_fd=dir)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def made(path, dir=None):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o640, dir_fd=dir)
    st = os.fstat(fd)
    os.close(fd)
    os.unlink(path, dir_fd=dir)
    return st.st_uid, st.st_gid


def later_without_times():
    fd = os.open(top + "/shared", os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME)
    finally:
        os.close(fd)


def may():
    """What the present user may do by path."""
    tried(" read secret", lambda: text(top + "/secret"))
    tried(" rename secret", lambda: (os.rename(top + "/secret", top + "/stolen"), os.rename(top + "/stolen", top + "/secret"))[:0])
    tried(" chmod secret", lambda: os.chmod(top + "/secret", 0o600))
    tried(" truncate secret", lambda: os.truncate(top + "/secret", 6))
    tried(" list closed", lambda: sorted(os.listdir(top + "/closed")))
    tried(" stat closed/inner", lambda: os.stat(top + "/closed/inner").st_uid)
    tried(" read team", lambda: text(top + "/team"))
    tried(" read hers", lambda: text(top + "/hers/own"))
    truncated = os.O_TRUNC if os.geteuid() else 0
    # Permission is checked before ownership, and ownership before the file is truncated.
    tried(" secret without times", lambda: os.close(os.open(top + "/secret", os.O_RDONLY | os.O_NOATIME)))
    tried(" open file without times", lambda: os.close(os.open(top + "/shared", os.O_RDWR | os.O_NOATIME | truncated)))
    tried(" hers without times", lambda: os.close(os.open(top + "/hers/own", os.O_RDONLY | os.O_NOATIME)))
    tried(" later without times", later_without_times)
    tried(" length", lambda: os.stat(top + "/shared").st_size)
    tried(" create in root's", lambda: made(top + "/new"))
    tried(" create in open", lambda: made(top + "/open/new"))
    tried(" access secret", lambda: int(os.access(top + "/secret", os.R_OK)))
    tried(" eaccess secret", lambda: int(os.access(top + "/secret", os.R_OK, effective_ids=True)))


def child(name, work):
    """Runs `work` in a forked child."""
    print(name, flush=True)
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("failed", repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


def called(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def becoming(change):
    def work():
        assert text(top + "/secret") == "secret"  # as root, so that a session exists
        secret = os.open(top + "/secret", os.O_RDWR)
        closed, passage = os.open(top + "/closed", os.O_RDONLY), os.open(top + "/passage", os.O_RDONLY)
        os.chdir(top + "/passage")
        change()
        may()
        # Open files keep their rights, and directories their place.
        tried(" pread", lambda: os.pread(secret, 100, 0))
        tried(" pwrite", lambda: os.pwrite(secret, b"SECRET", 0))
        tried(" fsync", lambda: os.fsync(secret))
        tried(" fstat", lambda: os.fstat(secret).st_size)
        tried(" fchmod", lambda: os.fchmod(secret, 0o666))
        tried(" fchown", lambda: os.fchown(secret, ADA, ADA))
        tried(" listdir", lambda: sorted(os.listdir(closed)))
        tried(" openat closed", lambda: text("inner", closed))
        tried(" openat passage", lambda: text("seen", passage))
        tried(" openat secret", lambda: text("hidden", passage))
        tried(" relative", lambda: text("seen"))
        tried(" relative secret", lambda: text("hidden"))
        tried(" again", lambda: text(f"/proc/self/fd/{secret}"))
        tried(" back", lambda: os.pwrite(secret, b"secret", 0))

    return work


for path, mode, owner in [("open", 0o777, 0), ("closed", 0o700, 0), ("passage", 0o711, 0), ("hers", 0o700, ADA)]:
    os.mkdir(f"{top}/{path}")
    os.chmod(f"{top}/{path}", mode)
    os.chown(f"{top}/{path}", owner, owner)
for path, mode, owner, group in [
    ("secret", 0o600, 0, 0),
    ("team", 0o640, 0, TEAM),
    ("hers/own", 0o600, ADA, ADA),
    ("closed/inner", 0o644, 0, 0),
    ("passage/seen", 0o644, 0, 0),
    ("shared", 0o666, 0, 0),
    ("passage/hidden", 0o600, 0, 0),
]:
    with open(f"{top}/{path}", "w") as file:
        file.write(path)
    os.chown(f"{top}/{path}", owner, group)
    os.chmod(f"{top}/{path}", mode)
os.chmod(top, 0o755)


def for_good():
    os.setgroups([])
    os.setgid(ADA)
    os.setuid(ADA)


def effective():
    os.setgroups([])
    os.setegid(ADA)
    os.seteuid(ADA)


def of_team():
    os.setgroups([TEAM])
    os.setegid(BOB)
    os.seteuid(ADA)


def initialized():
    called("initgroups", b"nobody-of-this-name", TEAM)
    os.setresgid(BOB, BOB, BOB)
    os.setresuid(BOB, BOB, BOB)


def for_files():
    libc.setfsgid(ADA)
    libc.setfsuid(ADA)


def by_number():
    called("syscall", SETGROUPS, 0, None)
    called("syscall", SETRESUID, KEEP, ADA, KEEP)


child("root", may)
child("setuid", becoming(for_good))
child("seteuid", becoming(effective))
child("setreuid", becoming(lambda: (os.setregid(BOB, BOB), os.setreuid(BOB, BOB))))
child("setreuid, effective only", becoming(lambda: os.setreuid(-1, ADA)))
child("setresuid", becoming(lambda: (os.setresgid(0, ADA, 0), os.setresuid(0, ADA, 0))))
child("setfsuid", becoming(for_files))
child("setgroups", becoming(of_team))
child("initgroups", becoming(initialized))
child("by number", becoming(by_number))


def there_and_back():
    for user in [ADA, BOB, ADA]:
        os.seteuid(user)
        tried(" of user", lambda: made(top + "/open/new"))
        tried(" secret", lambda: text(top + "/secret"))
        tried(" hers", lambda: text(top + "/hers/own"))
        os.seteuid(0)
        tried(" of root", lambda: made(top + "/open/new"))
        tried(" secret", lambda: text(top + "/secret"))


child("there and back", there_and_back)


def threads():
    """The C library changes all threads, a system call one."""
    first, second = threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)
    seen = []

    def other():
        called("syscall", SETRESUID, KEEP, ADA, KEEP)
        seen.append(made(top + "/open/other"))
        called("syscall", SETRESUID, KEEP, 0, KEEP)
        first.wait()
        second.wait()
        seen.append(made(top + "/open/other"))

    thread = threading.Thread(target=other)
    thread.start()
    first.wait()
    seen.append(made(top + "/open/main"))
    os.seteuid(BOB)
    second.wait()
    thread.join()
    print("", seen)


child("threads", threads)


def children():
    """A child of the new user opens the files again that it may open."""
    seen = os.open(top + "/passage/seen", os.O_RDONLY)
    lock = os.open(top + "/open/lock", os.O_CREAT | os.O_RDWR)
    os.chmod(top + "/open/lock", 0o666)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.chdir(top + "/passage")
    for_good()
    child(" forked", lambda: (tried("  pread", lambda: os.pread(seen, 100, 0)), tried("  relative", lambda: text("seen")), may()))
    program = "cat; cat seen; test ! -r hidden && id -u; echo hers >../open/by-program && stat -c %u:%g ../open/by-program"
    print("", subprocess.run(["sh", "-c", program], stdin=seen, capture_output=True).stdout.decode().split())
    other = os.open(top + "/open/lock", os.O_RDWR)
    tried(" locked", lambda: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB))
    os.close(lock)


child("children", children)
program = f"cat {top}/secret; echo x >{top}/open/by-setpriv && stat -c %u:%g {top}/open/by-setpriv"
for how in [["setpriv", "--reuid", str(BOB), "--regid", str(BOB), "--clear-groups"], ["chroot", f"--userspec={ADA}:{BOB}", "--groups=", "/"]]:
    os.path.exists(f"{top}/open/by-setpriv") and os.unlink(f"{top}/open/by-setpriv")
    done = subprocess.run([*how, "sh", "-c", program], capture_output=True)
    print(how[0], done.stdout.decode().strip(), "Permission denied" in done.stderr.decode())
