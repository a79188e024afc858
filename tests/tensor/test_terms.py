"""Terms of gathers: an index out of range reads inside the tensor, whatever it is."""

from __future__ import annotations

import torch

import weft


def test_gather_stays_inside_the_tensor() -> None:
    table, rows = torch.randn(5, 3), torch.tensor([0, -1, 4, 10**9, -(10**9)])
    got = weft.compile(lambda w, i: w[i])(table, rows)
    assert torch.equal(got, table[[0, 4, 4, 4, 0]])
