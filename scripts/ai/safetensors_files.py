"""safetensors: written by Rust code, read through maps."""

import fsspec
import numpy
import safetensors
import safetensors.numpy

from case import EVERYWHERE, Case, file_bytes, main


def tensors():
    chance = numpy.random.default_rng(2)
    return {f"layer.{at}": chance.standard_normal((64, 65 + at)).astype("f4") for at in range(8)}


def save(place):
    safetensors.numpy.save_file(tensors(), f"{place}/model.safetensors", metadata={"format": "np"})
    # Once more, over the first.
    safetensors.numpy.save_file(tensors(), f"{place}/model.safetensors", metadata={"format": "np"})


def load(place):
    parts = {}
    with safetensors.safe_open(f"{place}/model.safetensors", framework="numpy") as file:
        for name in file.keys():
            parts[name] = file.get_slice(name)[3:9, ::]
    return [file_bytes(place), parts, safetensors.numpy.load_file(f"{place}/model.safetensors")]


def save_to_url(place):
    with fsspec.open(f"{place}/model.safetensors", "wb") as file:
        file.write(safetensors.numpy.save(tensors()))


def load_from_url(place):
    with fsspec.open(f"{place}/model.safetensors", "rb") as file:
        return safetensors.numpy.load(file.read())


if __name__ == "__main__":
    main("safetensors", {"save_file": Case(save, load), "bytes": Case(save_to_url, load_from_url, EVERYWHERE)})
