"""Names that could be patterns: a name that exists is that file, for every call of fsspec."""

from __future__ import annotations

import glob
import os
import pathlib
import random
from collections.abc import Callable
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from servers import Servers

from weft_fs.filesystem import WeftFileSystem

#: Names with pattern characters, each with a name that it matches as a pattern.
PATTERNS = {"file[1].txt": "file1.txt", "what?.csv": "whatx.csv", "a*b": "axxb", "**": "anything", "[!x]": "y", "d[a-c]": "db"}
#: Names that programs misread in other ways.
ODD = [
    "[", "]", "[]", "*", "?", "data{x}.bin", "{a,b}", "per%20cent", "ha#sh", "q&a=1", "sp ace ", " lead", "ünï", "back\\slash",
    "back\\*", "colon:name", "weft:x", "file:x", "tilde~", "~", "~root", "$HOME", "new\nline", "tab\t", "-r", "'\"", "a,b", "a;b", "...",
    "\x7f", "..x", "@", "!",
]
NAMES = [*PATTERNS, *PATTERNS.values(), *ODD]


@pytest.fixture
def fs(servers: Servers) -> WeftFileSystem:
    return WeftFileSystem(cluster=servers.file)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_that_exists_is_that_file(fs: WeftFileSystem, at: str, tmp_path: pathlib.Path, name: str) -> None:
    other = PATTERNS[name]
    path, beside, target = f"/{at}/d/{name}", f"/{at}/d/{other}", f"/{at}/t"

    def both() -> None:
        fs.pipe({path: b"given", beside: b"other"})

    def names(where: str) -> list[str]:
        return sorted(found.rpartition("/")[2] for found in fs.find(where))

    both()
    for given in (path, f"weft://{path}", [path]):
        assert fs.expand_path(given) == [path]
        assert fs.expand_path(given, recursive=True) == [path]
    assert fs.cat(path) == b"given" and fs.cat([path]) == {path: b"given"}
    assert fs.du(path) == 5 and fs.find(path) == [path] and fs.ls(path, detail=False) == [path]
    with fsspec.open(f"weft://{path}", cluster=str(fs.weft.cluster_file)) as file:
        assert file.read() == b"given"
    assert fs.glob(glob.escape(path)) == [path]

    # Into a directory, to a new name, and as a list.
    fs.mkdir(target)
    fs.copy(path, target)
    fs.copy(path, f"{target}/new")
    fs.copy([path], f"{target}/list/")
    assert fs.cat(fs.find(target)) == {f"{target}/{name}": b"given", f"{target}/new": b"given", f"{target}/list/{name}": b"given"}
    fs.get(path, str(tmp_path))
    fs.get(path, str(tmp_path / "new"))
    assert (tmp_path / name).read_bytes() == b"given" == (tmp_path / "new").read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted([name, "new"])
    (tmp_path / other).write_bytes(b"wrong")
    fs.put(str(tmp_path / name), f"{target}/put")
    fs.put(str(tmp_path / name), f"{target}/made/")
    assert fs.cat(f"{target}/put") == b"given" and names(f"{target}/made") == [name]

    # Removed and renamed: the other file stays.
    fs.rm(path)
    assert names(f"/{at}/d") == [other]
    both()
    fs.rm([path], recursive=True)
    assert names(f"/{at}/d") == [other]
    both()
    fs.rm(path, recursive=True, maxdepth=2)
    assert names(f"/{at}/d") == [other]
    both()
    fs.mv(path, f"/{at}/moved")
    assert names(f"/{at}/d") == [other] and fs.cat(f"/{at}/moved") == b"given"
    fs.mv([f"/{at}/moved"], f"/{at}/d/")
    assert names(f"/{at}/d") == ["moved", other] if other > "moved" else [other, "moved"]

    # Without a file of this name it is a pattern.
    fs.rm(path)
    assert not fs.exists(beside) and not fs.exists(path)
    with pytest.raises(FileNotFoundError):
        fs.rm(path)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_directory_that_exists_is_that_directory(
    fs: WeftFileSystem, at: str, tmp_path: pathlib.Path, name: str
) -> None:
    path, beside, target = f"/{at}/{name}", f"/{at}/{PATTERNS[name]}", f"/{at}-t"
    fs.pipe({f"{path}/in/{name}": b"given", f"{beside}/in/{name}": b"other"})
    try:
        fs.copy(path, target, recursive=True)
        fs.copy(path, target, recursive=True)  # into the directory that exists now
        assert fs.find(target) == sorted([f"{target}/in/{name}", f"{target}/{name}/in/{name}"])
        fs.get(path, str(tmp_path / "got"), recursive=True)
        assert (tmp_path / "got/in" / name).read_bytes() == b"given"
        os.makedirs(tmp_path / name / "in")
        (tmp_path / name / "in/f").write_bytes(b"put")
        fs.put(str(tmp_path / name), f"{target}/put", recursive=True)
        assert fs.cat(f"{target}/put/in/f") == b"put" and len(fs.find(f"{target}/put")) == 1
        fs.rm(path, recursive=True)
        assert fs.find(f"/{at}") == [f"{beside}/in/{name}"]
    finally:
        fs.rm(target, recursive=True)


def test_patterns_still_expand(fs: WeftFileSystem, at: str) -> None:
    fs.pipe({f"/{at}/{name}": b"" for name in ("a1", "a2", "b1", "c/d")})
    assert fs.expand_path(f"/{at}/a?") == [f"/{at}/a1", f"/{at}/a2"]
    assert fs.expand_path([f"/{at}/none*", f"/{at}/b?"]) == [f"/{at}/b1"]
    assert sorted(fs.cat(f"/{at}/a*")) == [f"/{at}/a1", f"/{at}/a2"]
    fs.rm([f"/{at}/a?", f"/{at}/c", f"/{at}/c/d"], recursive=True)
    assert fs.find(f"/{at}") == [f"/{at}/b1"]
    for call in (fs.rm, fs.expand_path, fs.cat):
        with pytest.raises(FileNotFoundError):
            call(f"/{at}/none*")


@pytest.mark.parametrize("run", range(3))
def test_odd_names_behave_like_plain_local_ones(
    fs: WeftFileSystem, at: str, tmp_path: pathlib.Path, run: int
) -> None:
    """Random operations on Weft, and on a local directory with plain names instead of odd ones, have equal results."""
    seed = int(os.environ.get("WEFT_TEST_PYTHON_SEED", random.SystemRandom().getrandbits(48))) + run
    print(f"seed {seed}: repeat with WEFT_TEST_PYTHON_SEED={seed - run}")
    chance = random.Random(seed)
    names = chance.sample(NAMES, 8)
    # Brackets and stars beside the names that they match.
    names += [PATTERNS[name] for name in names if name in PATTERNS and PATTERNS[name] not in names]
    weft = Side(fs, f"/{at}", tmp_path / "weft", names)
    plain = Side(LocalFileSystem(auto_mkdir=True), str(tmp_path / "model"), tmp_path / "plain", [f"n{at:02}" for at in range(len(names))])
    plain.fs.mkdir(plain.root)
    for step in range(150):
        operation = chance.choice(OPERATIONS)
        state = chance.getstate()
        expected = plain.run(operation, chance)
        chance.setstate(state)
        found = weft.run(operation, chance)
        what = f"seed {seed}, step {step}: {operation.__name__}"
        assert found == expected, f"{what}; names {names}"
        assert weft.tree() == plain.tree(), what


class Side:
    """A file system under test, and a local directory for copies."""

    def __init__(self, fs: Any, root: str, local: pathlib.Path, names: list[str]) -> None:
        self.fs, self.root, self.local, self.names = fs, root, local, names
        self.number = {name: number for number, name in enumerate(names)}
        local.mkdir()

    def run(self, operation: Callable[..., Any], chance: random.Random) -> Any:
        try:
            return operation(self, chance)
        except (OSError, ValueError):
            return "refused"

    def name(self, chance: random.Random) -> str:
        return self.names[chance.randrange(len(self.names))]

    def path(self, chance: random.Random) -> str:
        """A path of one or two names."""
        return "/".join([self.root, *(self.name(chance) for _ in range(chance.randint(1, 2)))])

    def numbered(self, paths: Any, root: str | None = None) -> list[tuple[int, ...]]:
        """Paths with numbers for names, so that both sides compare."""
        root = root or self.root
        return sorted(tuple(self.number[part] for part in path[len(root) + 1 :].split("/") if part) for path in paths)

    def tree(self) -> Any:
        found = {tuple(self.numbered([path])): None for path in self.fs.find(self.root, withdirs=True)}
        for path in self.fs.find(self.root):
            found[tuple(self.numbered([path]))] = self.fs.cat_file(path)
        local = {}
        for above, _, files in os.walk(self.local):
            for file in files:
                path = os.path.join(above, file)
                local[tuple(self.numbered([path], str(self.local)))] = pathlib.Path(path).read_bytes()
        return found, local


def write(side: Side, chance: random.Random) -> None:
    path, data = side.path(chance), chance.randbytes(5)
    if side.fs.isdir(path):
        return
    with side.fs.open(path, chance.choice(["wb", "ab"])) as file:
        file.write(data)


def read(side: Side, chance: random.Random) -> Any:
    path = side.path(chance)
    return side.fs.cat(path) if side.fs.isfile(path) else None


def read_all(side: Side, chance: random.Random) -> Any:
    paths = [path for path in (side.path(chance) for _ in range(3)) if side.fs.isfile(path)]
    return sorted(side.fs.cat(paths).values()) if paths else None


def ask(side: Side, chance: random.Random) -> Any:
    path = side.path(chance)
    fs = side.fs
    return fs.exists(path), fs.isfile(path), fs.isdir(path), fs.exists(path) and fs.info(path)["type"]


def listing(side: Side, chance: random.Random) -> Any:
    return side.numbered(side.fs.ls(side.path(chance), detail=False))


def below(side: Side, chance: random.Random) -> Any:
    path = side.path(chance)
    return side.fs.exists(path) and (side.numbered(side.fs.find(path)), side.fs.du(path))


def expand(side: Side, chance: random.Random) -> Any:
    path = side.path(chance)
    return side.fs.exists(path) and side.numbered(side.fs.expand_path(path, recursive=chance.random() < 0.5))


def escaped(side: Side, chance: random.Random) -> Any:
    return side.numbered(side.fs.glob(glob.escape(side.path(chance))))


def children(side: Side, chance: random.Random) -> Any:
    return side.numbered(side.fs.glob(glob.escape(side.path(chance)) + "/*"))


def remove(side: Side, chance: random.Random) -> None:
    path = side.path(chance)
    if side.fs.exists(path):
        side.fs.rm(path, recursive=True)


def remove_file(side: Side, chance: random.Random) -> None:
    path = side.path(chance)
    if side.fs.isfile(path):
        side.fs.rm(path)


def is_apart(one: str, other: str) -> bool:
    """Whether neither path is below the other: copies into themselves differ between file systems."""
    return not f"{one}/".startswith(f"{other}/") and not f"{other}/".startswith(f"{one}/")


def copy(side: Side, chance: random.Random) -> None:
    source, target = side.path(chance), side.path(chance)
    is_recursive, slash = chance.random() < 0.5, chance.choice(["", "/"])
    if side.fs.exists(source) and is_apart(source, target):
        # A file in the place of a directory is refused in different ways, after different parts.
        if side.fs.isfile(source) or (is_recursive and not side.fs.isfile(target)):
            side.fs.copy(source, target + slash, recursive=is_recursive)


def rename(side: Side, chance: random.Random) -> None:
    source, target = side.path(chance), side.path(chance)
    inside = f"{target}/{source.rpartition('/')[2]}"
    # shutil.move refuses a name that exists in the directory; Weft replaces it.
    if side.fs.isfile(source) and is_apart(source, target) and not side.fs.exists(inside):
        side.fs.mv(source, target)


def get(side: Side, chance: random.Random) -> None:
    source, target = side.path(chance), str(side.local / side.name(chance))
    is_recursive = chance.random() < 0.5
    is_file = side.fs.isfile(source)
    if side.fs.exists(source) and (is_file or (is_recursive and not os.path.isfile(target))):
        side.fs.get(source, target, recursive=is_recursive)


def put(side: Side, chance: random.Random) -> None:
    source, target = str(side.local / side.name(chance)), side.path(chance)
    is_recursive = chance.random() < 0.5
    is_file = os.path.isfile(source)
    if os.path.exists(source) and (is_file or (is_recursive and not side.fs.isfile(target))):
        side.fs.put(source, target, recursive=is_recursive)


OPERATIONS = [
    write, write, write, read, read_all, ask, listing, below, expand, escaped, children, remove, remove_file, copy, copy, rename, get, put,
]
