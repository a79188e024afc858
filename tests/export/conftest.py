"""The device without a GPU of the tests of exported CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.export.fake_device import FakeDevice


@pytest.fixture
def device(tmp_path: Path) -> Iterator[FakeDevice]:
    """At the end nothing of the device is left, and the simulator has refused nothing."""
    made = FakeDevice(tmp_path)
    yield made
    assert made.live == 0
    assert made.error is None
