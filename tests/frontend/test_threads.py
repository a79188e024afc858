"""First calls from many threads at once, and from a child process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.frontend.entries import Entry, assert_same

THREADS = 8


def together(work: Callable[[], Any]) -> list[Any]:
    """What each of 8 threads that start at once gets; the first error of one is raised."""
    start, results = threading.Barrier(THREADS), []

    def run() -> None:
        start.wait()
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_the_first_call_from_many_threads(entry: Entry, grad: bool) -> None:
    m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    f, x = entry(m), torch.randn(5, 8)

    def step(module: Any) -> Any:
        with torch.set_grad_enabled(grad):  # a mode of the thread
            y = module(x)
            return y, torch.autograd.grad(y.square().sum(), [*m.parameters()]) if grad else ()

    want = step(m)
    results = together(lambda: step(f))
    assert len(results) == THREADS
    for result in results + together(lambda: step(f)):
        assert_same(result, want)


def test_different_signatures_from_many_threads(entry: Entry) -> None:
    f, sizes = entry(lambda x: x.sin() * 2), iter([1, 2, 3, 4] * (THREADS // 4))
    lock = threading.Lock()

    def call() -> None:
        with lock:
            x = torch.randn(3, next(sizes))
        for _ in range(5):
            assert_same(f(x), x.sin() * 2)

    together(call)


def test_a_fork_before_the_first_call(entry: Entry) -> None:
    """OpenMP's own threads do not pass a fork, so the parent has called nothing in parallel."""
    f, x = entry(lambda x: x.sin() * 2), torch.ones(3)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if torch.allclose(f(x), x.sin() * 2) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert_same(f(x), x.sin() * 2)
