"""Keys written at positions of a cache: native, in place, and one program for any sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import weft

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def put(cache: torch.Tensor, at: torch.Tensor, keys: torch.Tensor) -> None:
    cache[:, :, at] = keys


def narrow(cache: torch.Tensor, at: torch.Tensor, keys: torch.Tensor) -> None:
    cache.narrow(2, 1, keys.shape[2]).copy_(keys)


WRITES: dict[str, Write] = {
    "index_copy": lambda cache, at, keys: cache.index_copy_(2, at, keys),
    "index_add": lambda cache, at, keys: cache.index_add_(2, at, keys),
    "index_put": put,
    "narrow": narrow,
    "functional": lambda cache, at, keys: cache.copy_(cache.index_copy(2, at, keys)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", WRITES)
def test_a_cache_is_written_in_place(name: str, dtype: torch.dtype) -> None:
    def step(cache: torch.Tensor, first: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        WRITES[name](cache, torch.arange(keys.shape[2]) + first, keys)
        return cache.sum(-1)

    f = weft.compile(step, dynamic=True, fallback="error")
    for length, count in ((9, 3), (12, 4), (7, 2)):
        cache = torch.randn(2, 5, length, 8).to(dtype)
        ours, keys = cache.clone(), torch.randn(2, 5, count, 8).to(dtype)
        with torch.no_grad():
            want, got = step(cache, torch.tensor(2), keys), f(ours, torch.tensor(2), keys)
        torch.testing.assert_close(got, want)
        assert torch.equal(ours, cache)
    assert len(f.programs) == 1 and not f.report.externs


def test_a_position_outside_of_the_cache_is_an_error() -> None:
    f = weft.compile(lambda cache, at, keys: cache.index_copy_(2, at, keys), dynamic=True)
    with torch.no_grad(), pytest.raises(IndexError):
        f(torch.zeros(1, 2, 5, 4), torch.tensor([4, 5]), torch.ones(1, 2, 2, 4))


def test_how_two_sizes_compare_fixes_neither() -> None:
    """Torch guards that the slice is as long as the query: no range of a size says so."""

    def attend(query: torch.Tensor, length: int) -> torch.Tensor:
        cache = torch.zeros(1, 2, length, 8)
        cache.index_copy_(2, torch.arange(query.shape[2]) + torch.tensor(0), query)
        keys = cache[:, :, : query.shape[2]]
        return torch.nn.functional.scaled_dot_product_attention(query, keys, keys, is_causal=True)

    f = weft.compile(attend, dynamic=True)
    for count, length in ((20, 25), (19, 25), (7, 31), (3, 4)):
        x = torch.randn(1, 2, count, 8)
        torch.testing.assert_close(f(x, length), attend(x, length))
    assert len(f.programs) == 1
    x = torch.randn(1, 2, 6, 8)  # as long as the cache: the guard fails, and it is right still
    torch.testing.assert_close(f(x, 6), attend(x, 6))
