"""The interleaved timer: every callable runs, and a slower one is seen to be slower."""

from __future__ import annotations

import time

from weft.runtime import measure


def test_slower_is_slower() -> None:
    times = measure(
        {"fast": lambda: time.sleep(0.0005), "slow": lambda: time.sleep(0.003)},
        rounds=3,
        min_time=0.02,
    )
    assert 0.4 < times["fast"].median < times["slow"].median
    assert times["slow"].low <= times["slow"].median <= times["slow"].high
    assert "ms" in str(times["slow"])


def test_one_round() -> None:
    assert measure({"pass": lambda: None}, rounds=1, min_time=0.001)["pass"].rounds == 1
