"""Compiled calls that read many tensors."""

from __future__ import annotations

import torch

import weft


def test_more_arguments_than_a_byte_counts() -> None:
    """CPython 3.11 crashed at the ninth call, where the program is a builtin."""
    xs = [torch.arange(4) + i for i in range(256)]
    add = weft.compile(lambda xs: sum(xs))
    for _ in range(20):
        torch.testing.assert_close(add(xs), sum(xs))
    assert not add.reasons
