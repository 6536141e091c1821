"""pyarrow: Parquet, Feather, streams, datasets, and maps of files."""

import os
import sys

import fsspec
import numpy
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet

from case import EVERYWHERE, Case, main


def table():
    chance = numpy.random.default_rng(3)
    return pyarrow.table({
        "id": numpy.arange(20_000), "group": numpy.arange(20_000) % 3, "value": chance.standard_normal(20_000),
        "text": [f"row {number}" for number in range(20_000)],
    })


def columns(found):
    return {name: found.column(name).to_numpy() if name != "text" else str(found.column(name).to_pylist()[:50]) for name in sorted(found.column_names)}


def save(place):
    pyarrow.parquet.write_table(table(), f"{place}/t.parquet", row_group_size=3000)
    pyarrow.feather.write_feather(table(), f"{place}/t.feather", compression="uncompressed")
    pyarrow.csv.write_csv(table(), f"{place}/t.csv")
    with pyarrow.OSFile(f"{place}/t.arrow", "wb") as sink, pyarrow.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table())


def load(place):
    with pyarrow.memory_map(f"{place}/t.arrow", "r") as source:
        mapped = columns(pyarrow.ipc.open_file(source).read_all())
    return [
        columns(pyarrow.parquet.read_table(f"{place}/t.parquet", memory_map=True)),
        columns(pyarrow.parquet.read_table(f"{place}/t.parquet", columns=["id", "text"])),
        columns(pyarrow.feather.read_table(f"{place}/t.feather", memory_map=True)),
        columns(pyarrow.csv.read_csv(f"{place}/t.csv")),
        mapped,
    ]


def map_new(place):
    data = bytes(range(256)) * 1000
    with pyarrow.create_memory_map(f"{place}/map", len(data)) as file:
        file.write(data)
        file.seek(1000)
        file.write(b"again")
    with pyarrow.memory_map(f"{place}/map", "r+") as file:
        file.seek(9)
        file.write(b"and again")


def read_map(place):
    with open(f"{place}/map", "rb") as file, pyarrow.memory_map(f"{place}/map", "r") as mapped:
        return [file.read(), mapped.read()]


def save_dataset(place):
    fs, path = fsspec.core.url_to_fs(place)
    pyarrow.dataset.write_dataset(
        table(), f"{path}/set", filesystem=fs, format="parquet", partitioning=["group"], partitioning_flavor="hive")


def load_dataset(place):
    fs, path = fsspec.core.url_to_fs(place)
    found = pyarrow.dataset.dataset(f"{path}/set", filesystem=fs, format="parquet", partitioning="hive")
    return [len(found.files), columns(found.to_table(filter=pyarrow.dataset.field("group") == 1).sort_by("id"))]


if __name__ == "__main__":
    main("pyarrow", {
        "files": Case(save, load),
        "create_memory_map": Case(map_new, read_map),
        "dataset": Case(save_dataset, load_dataset, EVERYWHERE),
    })
    # Threads of pyarrow 26 release files of fsspec after the call has returned, and abort the process if the interpreter ends
    # meanwhile. With fsspec's own `memory` file system, 7 of 30 programs on a busy machine ended so.
    sys.stdout.flush()
    os._exit(0)
