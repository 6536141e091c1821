# Names in the directory argv[1] are replaced while programs use them in argv[2], the same directory. Prints "well" or fails.
import errno, os, sys

here, there = sys.argv[1:3]
os.makedirs(here, exist_ok=True)
ROUNDS = 300


def rename(n):
    with open(here + "/new", "w") as f:
        f.write(f"{n:06d}" * 10)
    os.setxattr(here + "/new", "user.n", b"1")
    os.rename(here + "/new", here + "/name")


def again(n):
    if n:
        os.unlink(here + "/name")
    with open(here + "/name", "w") as f:
        f.write(f"{n:06d}" * 10)


def link(n):
    os.symlink(f"target{n}", here + "/new")
    os.rename(here + "/new", here + "/name")


def read(name):
    with open(name) as f:
        text = f.read()
    assert len(text) in (0, 60) and text == text[:6] * (len(text) // 6), text
    return len(text) > 0


def shortened(name):
    os.truncate(name, 60)
    return True


def linked(name):
    # A replaced file has no name, and gets none.
    try:
        os.link(name, there + "/second")
        os.unlink(there + "/second")
    except FileNotFoundError:
        pass
    return True


def changed(name):
    os.chmod(name, 0o600)
    os.utime(name)
    if not os.access(name, os.R_OK):
        raise FileNotFoundError(name)
    return True


def attributes(name):
    os.setxattr(name, "user.m", b"1")
    assert os.getxattr(name, "user.n") == b"1" and "user.n" in os.listxattr(name)
    return True


USES = {
    rename: [read, os.stat, changed, attributes, shortened, linked],
    again: [read, os.stat, changed],
    link: [os.readlink, os.lstat],
}

for replace, uses in USES.items():
    replace(0)
    users = []
    for use in uses:
        pid = os.fork()
        if pid == 0:
            fine = 0
            try:
                while fine < 1 << 30 and not os.path.exists(here + "/end"):
                    try:
                        fine += bool(use(there + "/name"))
                    except FileNotFoundError:
                        assert replace is again, "a name that always exists"
                assert fine, "some use succeeded"
                os._exit(0)
            except BaseException as e:
                print(f"{replace.__name__}, {getattr(use, '__name__', use)} after {fine}: {e!r}", flush=True)
                os._exit(1)
        users.append(pid)
    for n in range(1, ROUNDS):
        replace(n)
    with open(here + "/end", "w"):
        pass
    ended = [os.waitpid(pid, 0)[1] for pid in users]
    assert not any(ended), ended
    os.unlink(here + "/end")
    os.unlink(here + "/name")
print("well")
