"""A fresh machine for tests: what was installed, configured or made by hand on this one does not change their results.

`environment` and `limits` hold for every user. `enter` needs root, because it hides files of this machine in a mount
namespace: an unprivileged user could have one in a user namespace only, where fusermount3 has no rights. Tests that
act for several users need root as well.
"""

import ctypes
import os
import pathlib
import resource
import stat

# Accounts that Debian assigns itself have ids below 100, and nobody has 65534. Installed packages and administrators
# use the ids between them.
FIRST_DYNAMIC, NOBODY = 100, 65534
# Services of names that may know further accounts.
ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "initgroups")
# Variables of the tools that build and install; other variables of the user do not reach the tests.
KEPT = {
    "CI", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "PYTHON", "CC", "CXX", "AR", "CFLAGS", "CXXFLAGS", "LDFLAGS",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NO_COLOR", "PYENV_ROOT",
}
KEPT_PREFIXES = ("CARGO", "RUST", "PIP_", "PROPTEST_", "SSL_CERT_", "OPENBLAS_")
# Soft limit of open files after a login.
OPEN_FILES = 1024

MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
CLONE_NEWNS = 0x20000
libc = ctypes.CDLL(None, use_errno=True)


def environment(given):
    """Returns the variables of `given` that reach the tests."""
    kept = {
        name: value
        for name, value in given.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES) or name.lower().endswith("_proxy")
    }
    # Backtraces change messages. Byte code would be left in the source tree.
    kept.pop("RUST_BACKTRACE", None)
    return kept | {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_NOSYSTEM": "1"}


def limits():
    """Sets the limits and the file mode mask of a login."""
    os.umask(0o022)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if most < 0 else min(OPEN_FILES, most), most))
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def enter(room):
    """Moves this process into a mount namespace with the accounts of a base system and of the running user, without
    Weft's and fuse's system-wide configuration, and with a /dev/fuse that all users may open. Keeps files in the new
    directory `room`. Raises OSError if the system allows no namespace; nothing has changed then."""
    if libc.unshare(CLONE_NEWNS) != 0:
        raise failure("unshare")
    mount(None, "/", MS_REC | MS_PRIVATE)
    room.mkdir()
    users, groups = accounts()
    for path, text in {"/etc/passwd": users, "/etc/group": groups, "/etc/nsswitch.conf": services(), "/etc/fuse.conf": ""}.items():
        if os.path.exists(path):
            file = room / os.path.basename(path)
            file.write_text(text)
            file.chmod(0o644)
            mount(file, path, MS_BIND)
    empty = room / "empty"
    empty.mkdir()
    # The name service cache daemon would answer with the accounts of this machine.
    for path in ("/run/nscd", "/etc/weft"):
        if os.path.isdir(path):
            mount(empty, path, MS_BIND)
    open_fuse(room / "dev")


def accounts():
    """Returns the files of users and of groups."""

    def lines(path):
        rows = pathlib.Path(path).read_text(errors="surrogateescape").splitlines()
        return [row.split(":") for row in rows if row.count(":") >= 3]

    def is_base(number):
        return number.isdigit() and (int(number) < FIRST_DYNAMIC or int(number) == NOBODY)

    own = {str(os.getuid())}
    own_groups = {str(gid) for gid in (os.getgid(), *os.getgroups())}
    users = [row for row in lines("/etc/passwd") if is_base(row[2]) or row[2] in own]
    names = {row[0] for row in users}
    groups = []
    for row in lines("/etc/group"):
        # Debian's group of all users has the id 100.
        if is_base(row[2]) or row[2] in own_groups or row[0] == "users":
            groups.append([*row[:3], ",".join(name for name in row[3].split(",") if name in names)])
    return tuple("".join(":".join(row) + "\n" for row in rows) for rows in (users, groups))


def services():
    """Returns a /etc/nsswitch.conf with the accounts of files only."""
    try:
        rows = pathlib.Path("/etc/nsswitch.conf").read_text().splitlines()
    except OSError:
        rows = []
    kept = [row for row in rows if row.partition(":")[0].strip() not in ACCOUNTS]
    return "".join(f"{row}\n" for row in [*kept, *(f"{name}: files" for name in ACCOUNTS)])


def open_fuse(room):
    """Replaces a /dev/fuse that only root may open, as some containers have it, by one with its usual mode."""
    try:
        found = os.stat("/dev/fuse")
        if found.st_mode & 0o006 == 0o006 or not stat.S_ISCHR(found.st_mode):
            return
        room.mkdir()
        # The file system of `room` may forbid devices.
        mount("weft-tests", room, 0, "tmpfs")
        try:
            os.mknod(room / "fuse", stat.S_IFCHR, found.st_rdev)
            os.chmod(room / "fuse", 0o666)
            mount(room / "fuse", "/dev/fuse", MS_BIND)
        finally:
            libc.umount2(str(room).encode(), MNT_DETACH)
    except OSError:
        pass  # without the device, or the right to make one: a test that needs it says so


def mount(source, target, flags, kind=None):
    """Mounts or binds."""
    encoded = (None if value is None else str(value).encode() for value in (source, target, kind))
    if libc.mount(*encoded, flags, None) != 0:
        raise failure(str(target))


def failure(what):
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), what)
