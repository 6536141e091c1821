"""Layouts: on which targets the bytes of a file are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from ._binding import ffi

_NO_END = 2**64 - 1


@dataclass(frozen=True)
class Column:
    """One column of a layout: a target, and its bytes in each round of the striping."""

    target: int
    """Id of the target in the cluster file."""
    stripe_size: int
    """Bytes in each round."""
    start: int
    """First byte of the file in the component of this column."""
    end: int | None
    """End of the component; None: no end."""
    component: int
    """Number of the component."""
    column: int
    """Position in each round."""


@dataclass(frozen=True)
class Layout:
    """Layout of a file: columns in the order of components and rounds."""

    columns: tuple[Column, ...]

    @property
    def targets(self) -> tuple[int, ...]:
        """Ids of all targets, each once, in the order of the columns."""
        return tuple(dict.fromkeys(column.target for column in self.columns))

    @property
    def stripe_count(self) -> int:
        """Number of columns of the first component."""
        return sum(column.component == 0 for column in self.columns)

    @property
    def stripe_size(self) -> int | None:
        """Bytes of each column in a round of the first component; None if the columns differ."""
        sizes = {column.stripe_size for column in self.columns if column.component == 0}
        return sizes.pop() if len(sizes) == 1 else None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class LayoutSpec:
    """Requested layout of a new file. The directory's default, then the cluster file, decide what is left out."""

    stripe_size: int | None = None
    """Bytes on each target in a round."""
    stripe_count: int | None = None
    """Number of targets."""
    first: int | None = None
    """Index of the first target among the eligible ones."""
    class_name: str | None = None
    """Class of all targets, such as "ssd"."""
    strips: Sequence[tuple[int, int]] | None = None
    """Exact targets and stripe sizes; overrides the rest."""


#: A requested layout, as an object or as a dictionary of its fields.
LayoutLike = LayoutSpec | Mapping[str, Any]


def columns_from(array: Any, count: int) -> tuple[Column, ...]:
    """Return columns of the library as objects."""
    return tuple(
        Column(
            target=array[at].target,
            stripe_size=array[at].stripe_size,
            start=array[at].start,
            end=None if array[at].end == _NO_END else array[at].end,
            component=array[at].component,
            column=array[at].column,
        )
        for at in range(count)
    )


def _spec_of(fields: Mapping[str, Any]) -> LayoutSpec:
    """Return the spec with these fields."""
    known = [field.name for field in dataclass_fields(LayoutSpec)]
    unknown = [repr(name) for name in fields if name not in known]
    if unknown:
        raise TypeError(f"weft: layout: {', '.join(unknown)}: the fields are {', '.join(known)}")
    return LayoutSpec(**fields)


def spec_to(spec: LayoutLike | None) -> tuple[Any, list[Any]]:
    """Return a spec for the library, and the memory that must live as long."""
    if spec is None:
        return ffi.NULL, []
    if isinstance(spec, Mapping):
        spec = _spec_of(spec)
    if not isinstance(spec, LayoutSpec):
        raise TypeError(f"weft: layout: {type(spec).__name__}: give a LayoutSpec, or a dictionary with its fields")
    out = ffi.new("weft_layout_spec_t *")
    kept: list[Any] = [out]
    out.stripe_size = spec.stripe_size or 0
    out.stripe_count = spec.stripe_count or 0
    out.first = -1 if spec.first is None else spec.first
    if spec.class_name is not None:
        kept.append(ffi.new("char[]", spec.class_name.encode()))
        out.class_name = kept[-1]
    if spec.strips is not None:
        if not spec.strips:
            raise ValueError("weft: strips: the list is empty; name at least one target")
        strips = ffi.new("weft_strip_t[]", [(target, 0, size) for target, size in spec.strips])
        kept.append(strips)
        out.strips, out.strip_count = strips, len(spec.strips)
    return out, kept
