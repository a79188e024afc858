"""The two ways into weft, for the tests that go through both."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.entries import ENTRIES, Entry


@pytest.fixture(params=ENTRIES)
def entry(request: pytest.FixtureRequest) -> Entry:
    """weft.compile, then torch.compile(backend="weft"), with nothing compiled before."""
    torch.compiler.reset()
    torch.manual_seed(0)
    return ENTRIES[request.param]
