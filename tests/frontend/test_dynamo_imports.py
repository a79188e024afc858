"""What Dynamo imports in the first call that it follows."""

from __future__ import annotations

import sys

import pytest
import torch
from torch._dynamo.variables.higher_order_ops import LocalMapWrappedHigherOrderVariable as Wrapper

import weft

FUNCTION_MAP = "torch.distributed.tensor.experimental._func_map"


def test_no_distributed_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where Dynamo is to take their wrapper, it still finds it."""
    monkeypatch.delitem(sys.modules, FUNCTION_MAP, raising=False)
    x = torch.ones(3)
    assert weft.compile(lambda t: torch.relu(t) + torch.sin(t))(x) is not None
    assert FUNCTION_MAP not in sys.modules
    with Wrapper.enable():
        assert not Wrapper.should_wrap_in_hop(torch.relu)
        assert Wrapper.should_wrap_in_hop(sys.modules[FUNCTION_MAP]._local_map_wrapped)
