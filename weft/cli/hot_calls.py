"""Times calls of programs that are compiled already: nearly all of it is the path to the kernel.

calls = measure(lambda program: weft.compile(program.callable))
calls.function_us, calls.module_us, calls.alternating_us
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import nn

from weft.cli.habits import fastest
from weft.cli.program import Source

SUBMODULES = 80
REPEATS = 500

# The goals for weft, in microseconds at most.
GOALS = {"function_us": 4.0, "module_us": 15.0}


@dataclass(frozen=True)
class HotCalls:
    """Microseconds of one call.

    function     a function of two tensors, always with one signature
    module       a module of 80 submodules, whose attributes need guards
    alternating  such a function, with two signatures in turn
    apart        the same function with each of the two by itself: the mean of both
    """

    function_us: float
    module_us: float
    alternating_us: float
    apart_us: float

    @property
    def alternating_share(self) -> float:
        """The time of calls in turn as a multiple of the same calls, each signature by itself."""
        return self.alternating_us / self.apart_us


TITLES = {
    "function_us": "a function of two tensors",
    "module_us": f"a module of {SUBMODULES} submodules",
    "alternating_us": "a function of two signatures in turn",
    "apart_us": "the same, each signature by itself",
}


def measure(compile: Callable[[Source], Callable[..., Any]]) -> HotCalls:
    """The fastest of several rounds, of the programs as `compile` compiles them."""
    small, large = ([torch.randn(n, n) for _ in range(2)] for n in (8, 16))
    # each submodule reads its input once: what compilers inline does not grow with the depth
    module = nn.Sequential(*(nn.Hardtanh(-i, i) for i in range(1, SUBMODULES + 1))).eval()
    with torch.inference_mode():
        function = compile(Source(torch.add, tuple(large), {}, "function"))
        whole = compile(Source(module, (large[0],), {}, "module"))
        turns = compile(Source(torch.sub, tuple(large), {}, "alternating"))

        def alternate() -> None:
            turns(*large)
            turns(*small)

        return HotCalls(
            function_us=microseconds(lambda: function(*large)),
            module_us=microseconds(lambda: whole(large[0])),
            apart_us=fmean(microseconds(partial(turns, *one)) for one in (large, small)),
            alternating_us=microseconds(alternate) / 2,
        )


def microseconds(call: Callable[[], Any]) -> float:
    for _ in range(3):  # compiles, and warms up
        call()
    return fastest(call, REPEATS) * 1e6
