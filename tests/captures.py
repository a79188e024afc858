"""Back ends that run nothing: what tests capture programs with.

captured = capture_call(module, (x,))       # one captured graph, not run
class Emitter(Silent): ...                  # a back end that keeps texts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.calling import Compilation
from weft.core.errors import CaptureError
from weft.frontend.graph import Captured, Runner
from weft.frontend.specialise import Session


class Silent:
    """What is common to back ends that nobody asks for texts and reports."""

    def session(self, title: str) -> Session:
        return Session(self, strict=True, debug=True, title=title, fused_random=False)

    def ir(self, programs: Sequence[Runner], level: str) -> str:
        return ""

    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Any:
        return None

    def __call__(self, captured: Captured) -> Runner:
        raise NotImplementedError


@dataclass
class _Recorder(Silent):
    """A back end that keeps what was captured, and runs nothing."""

    found: list[Captured] = field(default_factory=list[Captured])
    fused_random: bool = False

    def session(self, title: str) -> Session:
        return replace(super().session(title), fused_random=self.fused_random)

    def __call__(self, captured: Captured) -> Runner:
        self.found.append(captured)
        return lambda tensors: ()


def capture_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    fused_random: bool = False,
) -> Captured:
    """`fn(*args, **kwargs)` as one captured graph, not run; CaptureError where it is not one.

    Where gradients are wanted it is the forward graph.
    """
    recorder = _Recorder(fused_random=fused_random)
    Compilation(fn, recorder).prepare(*args, **(kwargs or {}))
    if not recorder.found:
        raise CaptureError("the call has no graph: it computes nothing with tensors")
    return recorder.found[0]
