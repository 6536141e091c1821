"""Byte-range locks."""

from __future__ import annotations

import errno
import threading

import pytest

import weft_fs
from weft_fs import LockInfo


def test_locks_conflict_and_end(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "w+b") as one, cluster.open(f"{at}/f", "r+b") as two:
        with one.lock(10, 20) as lock:
            assert (lock.start, lock.length) == (10, 20)
            found = two.test_lock(0, 0)
            assert isinstance(found, LockInfo)
            assert (found.exclusive, found.start, found.length) == (True, 10, 20)
            for exclusive in (True, False):
                with pytest.raises(BlockingIOError) as caught:
                    two.lock(15, 1, exclusive=exclusive, timeout=0)
                assert caught.value.errno == errno.EAGAIN
            with pytest.raises(BlockingIOError):
                two.lock(15, 1, timeout=0.3)
            two.lock(30, 5, timeout=0).release()
        assert two.test_lock() is None
        with one.lock(0, 5, exclusive=False), two.lock(0, 5, exclusive=False, timeout=0):
            with pytest.raises(BlockingIOError):
                one.lock(0, 5, timeout=0)
        lock = two.lock()
        lock.release()
        lock.release()
        one.lock(timeout=0)
        # The end of the file releases its locks; releasing afterwards is no error.
        held = two.test_lock()
        assert held is not None and held.length == 0
        one.close()
        two.lock(timeout=None)


def test_a_lock_is_waited_for(cluster: weft_fs.Cluster, at: str) -> None:
    with cluster.open(f"{at}/f", "w+b") as one, cluster.open(f"{at}/f", "r+b") as two:
        held = one.lock()
        order: list[str] = []

        def work() -> None:
            with two.lock():
                order.append("two")

        thread = threading.Thread(target=work)
        thread.start()
        order.append("one")
        held.release()
        thread.join()
        assert order == ["one", "two"]
