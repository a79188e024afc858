"""What a bench measures by, and its arithmetic; a device's events are made up."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from weft.cli import clocks
from weft.cli.clocks import FEWEST, CPUClock, CUDAClock
from weft.runtime import cuda_timing


class Device:
    """Its time goes on by what is run on it."""

    def __init__(self) -> None:
        self.now, self.log = 0.0, []

    def event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        made = SimpleNamespace(at=0.0)
        made.record = lambda: (setattr(made, "at", self.now), self.log.append("event"))
        made.elapsed_time = lambda end: end.at - made.at
        return made

    def run(self, what: str, ms: float) -> None:
        self.now += ms
        self.log.append(what)


def test_a_device_is_timed_by_events_around_the_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    flush = SimpleNamespace(device="a device", zero_=lambda: device.run("flush", 50.0))
    monkeypatch.setattr(torch.cuda, "device", lambda place: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: device.log.append("wait"))
    spent = iter([2.0, 3.0, 90.0])
    found = cuda_timing.times(lambda: device.run("call", next(spent)), flush, 3)  # type: ignore[arg-type]
    assert found == pytest.approx([2000.0, 3000.0, 90000.0])
    assert device.log == ["flush", "event", "call", "event"] * 3 + ["wait"]

    monkeypatch.setattr(clocks, "flush_of", lambda place: flush)
    clock = CUDAClock(torch.device("cuda", 0))
    assert clock.median(lambda: device.run("call", 4.0), seconds=0.0) == pytest.approx(4e-3)
    assert device.log.count("call") == 3 + 1 + FEWEST
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32


def test_a_cpu_is_timed_on_the_wall() -> None:
    assert 1e-9 < CPUClock().median(lambda: None, seconds=0.01) < 1e-4
    assert CPUClock().arena_stays and not CUDAClock.arena_stays
