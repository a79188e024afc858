"""weft.export_weights: rounded integers, and what does not fit them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import weft
from weft.lowbit import LowBitError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l0w = nn.Parameter(torch.tensor([[0.5, -1.25], [0.01, 128.4]]))
        self.l0b = nn.Parameter(torch.tensor([1.5, 2.5, -0.5]))


def test_weights_are_rounded_to_even() -> None:
    found = weft.export_weights(Net(), {"l0w": "i16*255", "l0b": "i8"})
    assert found["l0w"].dtype == np.int16
    assert found["l0w"].tolist() == [[128, -319], [3, 32742]]  # 127.5, -318.75, 2.55
    assert found["l0b"].dtype == np.int8
    assert found["l0b"].tolist() == [2, 2, 0]
    assert weft.export_weights(Net(), {"l0b": "i32*0.5"})["l0b"].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        (128.51, "i16*255", r"l0w\[1, 0\] is 128\.51, and 32770 as i16\*255 is beyond -32768 to"),
        (-129.0, "i8", r"l0w\[1, 0\] is -129"),
        (-0.51, "u16", "beyond 0 to 65535"),
        (float("nan"), "i32", "is nan"),
        (float("inf"), "i32", "is inf"),
        (0.0, "f16*2", "'f16\\*2' is no format"),
        (0.0, "i16*-2", "is no format"),
    ],
)
def test_what_does_not_fit(value: float, text: str, words: str) -> None:
    net = Net()
    with torch.no_grad():
        net.l0w.zero_()
        net.l0w[1, 0] = value
    with pytest.raises(LowBitError, match=words) as caught:
        weft.export_weights(net, {"l0w": text})
    assert "\n" not in caught.value.message


def test_names_that_are_not_there() -> None:
    with pytest.raises(LowBitError, match="no parameter l1w: one of l0w, l0b"):
        weft.export_weights(Net(), {"l1w": "i8"})
