"""A database of its own for each test of the tuner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.config import config
from weft.tune import tuner


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tuner, "config", replace(config, cache=tmp_path))
    return tmp_path
