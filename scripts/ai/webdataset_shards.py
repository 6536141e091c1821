"""webdataset: tar shards of samples."""

import glob

import fsspec
import numpy
import webdataset

from case import EVERYWHERE, Case, main


def samples():
    chance = numpy.random.default_rng(4)
    return [{"__key__": f"{at:05}", "x.npy": chance.standard_normal(500), "json": {"at": at}} for at in range(60)]


def save(place):
    with webdataset.ShardWriter(f"{place}/part-%03d.tar", maxcount=25, verbose=0) as shards:
        for sample in samples():
            shards.write(sample)


def load(place):
    shards = sorted(glob.glob(f"{place}/part-*.tar"))
    found = webdataset.WebDataset(shards, shardshuffle=False).decode()
    return [len(shards), [[sample["__key__"], sample["x.npy"], sample["json"]] for sample in found]]


def save_to_url(place):
    with fsspec.open(f"{place}/one.tar", "wb") as file, webdataset.TarWriter(file) as shard:
        for sample in samples():
            shard.write(sample)


def load_from_url(place):
    with fsspec.open(f"{place}/one.tar", "rb") as file:
        return [[name.rpartition("/")[2], data] for name, data in members(file)]


def members(file):
    import tarfile

    with tarfile.open(fileobj=file) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


if __name__ == "__main__":
    main("webdataset", {"shards": Case(save, load), "file object": Case(save_to_url, load_from_url, EVERYWHERE)})
