"""torch: tensors in files and maps, and a checkpoint of two ranks."""

import os

import fsspec
import torch
import torch.distributed
import torch.distributed.checkpoint
import torch.multiprocessing

from case import EVERYWHERE, Case, file_bytes, main

RANKS = 2


def tensors():
    chance = torch.Generator().manual_seed(7)
    return {f"w{at}": torch.randn(50, 60 + at, generator=chance) for at in range(5)}


def arrays(found):
    return {name: tensor.numpy() for name, tensor in found.items()}


def save(place):
    torch.save(tensors(), f"{place}/model.pt")
    torch.save(tensors(), f"{place}/old.pt", _use_new_zipfile_serialization=False)


def load(place):
    return [arrays(torch.load(f"{place}/model.pt")), arrays(torch.load(f"{place}/model.pt", mmap=True)), arrays(torch.load(f"{place}/old.pt"))]


def save_map(place):
    with open(f"{place}/map", "wb") as file:
        file.truncate(4 * 100_000)
    shared = torch.from_file(f"{place}/map", shared=True, size=100_000)
    shared[:] = torch.arange(100_000)
    del shared


def load_map(place):
    return [file_bytes(place), torch.from_file(f"{place}/map", size=100_000).numpy()]


def state(rank):
    chance = torch.Generator().manual_seed(100 + rank)
    return {"both": torch.arange(1000.0), f"rank{rank}": torch.randn(300, 300, generator=chance)}


def ranks(work, place):
    """Runs `work` in each rank of a gloo group, in processes of their own."""
    # On the local file system, because gloo's meeting point is no part of the test.
    meeting = f"/tmp/weft-ai-{os.getpid()}"
    try:
        torch.multiprocessing.spawn(rank_main, args=(work, place, meeting), nprocs=RANKS)
    finally:
        if os.path.exists(meeting):
            os.remove(meeting)


def rank_main(rank, work, place, meeting):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    try:
        work(rank, place)
    finally:
        torch.distributed.destroy_process_group()


def save_rank(rank, place):
    for _ in range(2):  # the second over the first
        torch.distributed.checkpoint.save(state(rank), checkpoint_id=f"{place}/checkpoint")


def load_rank(rank, place):
    found = {name: torch.zeros_like(tensor) for name, tensor in state(rank).items()}
    torch.distributed.checkpoint.load(found, checkpoint_id=f"{place}/checkpoint")
    assert all(torch.equal(found[name], tensor) for name, tensor in state(rank).items()), "the checkpoint has other bytes"


def save_checkpoint(place):
    ranks(save_rank, place)


def load_checkpoint(place):
    ranks(load_rank, place)
    return sorted(os.listdir(f"{place}/checkpoint"))


def save_to_url(place):
    with fsspec.open(f"{place}/model.pt", "wb") as file:
        torch.save(tensors(), file)


def load_from_url(place):
    with fsspec.open(f"{place}/model.pt", "rb") as file:
        return arrays(torch.load(file))


if __name__ == "__main__":
    main("torch", {
        "save, load": Case(save, load),
        "from_file shared": Case(save_map, load_map),
        "distributed checkpoint, 2 ranks": Case(save_checkpoint, load_checkpoint),
        "file object": Case(save_to_url, load_from_url, EVERYWHERE),
    })
