"""Every row of the ATen table against eager, on torch's own samples and on a few programs here.

A call is recorded as torch dispatches it, lowered alone, and interpreted at the tensor level.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

import weft
from tests.conformance.cases import operators
from tests.frontend.test_aten_programs import (
    COMPOSITES,
    DECOMPOSED,
    INEXACT,
    OF_PROGRAMS,
    PROGRAMS,
    SKIPPED,
)
from weft.core.errors import CaptureError, UnsupportedOpError
from weft.frontend.aten.rows import LOWER
from weft.frontend.aten.table import overloads
from weft.frontend.capture import capture
from weft.frontend.graph import Captured
from weft.frontend.lower import to_tensor
from weft.interpret.memory import as_array
from weft.interpret.tensors import evaluate

TOLERANCE = {
    torch.float8_e4m3fn: 0.0,  # casts alone give one
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-5,
    torch.float64: 1e-7,  # some of eager's own float64 kernels hold f32 constants
}
NATIVE = {*LOWER, *overloads(" ".join(DECOMPOSED))}
CALLS_PER_ROW = 12


class Recorder(TorchDispatchMode):
    """Hands every functional ATen call and its result to `sink`."""

    def __init__(self, sink: Callable[..., None]) -> None:
        super().__init__()
        self.sink = sink

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func._schema.is_mutable:
            self.sink(func, args, kwargs or {}, out)
        return out


def captured(func: Any, args: Any, kwargs: Any) -> tuple[Captured, list[torch.Tensor]]:
    """The one call as a program of its own, and the tensors it takes."""
    graph, tensors = torch.fx.Graph(), []

    def given(tensor: torch.Tensor) -> torch.fx.Node:
        tensors.append(tensor.detach())
        return graph.placeholder(f"x{len(tensors)}")

    nodes = tree_map_only(torch.Tensor, given, (tuple(args), dict(kwargs)))

    def program(*values: torch.Tensor) -> list[torch.Tensor]:
        held = dict(zip(graph.find_nodes(op="placeholder"), values, strict=True))
        own_args, own_kwargs = tree_map_only(torch.fx.Node, held.__getitem__, nodes)
        out = func(*own_args, **own_kwargs)
        return [t.clone() for t in tree_leaves(out) if isinstance(t, torch.Tensor)]

    graph.output(graph.call_function(program, tuple(graph.find_nodes(op="placeholder"))))
    return capture(torch.fx.GraphModule(torch.nn.Module(), graph), tensors), tensors


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return as_array(tensor.detach().resolve_conj().resolve_neg())


def difference(got: np.ndarray, want: torch.Tensor) -> str | None:
    """What is wrong with a result; None when it is eager's."""
    expected = to_numpy(want)
    if expected.dtype.kind not in "fV":
        return None if (got == expected).all() else f"{got.ravel()[:8]}, not {expected.ravel()[:8]}"
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(a)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(b[finite]).all()
    ):
        return f"not finite elsewhere: {a.ravel()[:8]}, not {b.ravel()[:8]}"
    error = np.linalg.norm(a[finite] - b[finite])
    size = np.linalg.norm(b[finite]) + 0.05 * np.sqrt(b.size)  # results that cancel to nothing
    return None if error <= TOLERANCE[want.dtype] * size else f"relative error {error / size:.1e}"


def failure(func: Any, args: Any, kwargs: Any, out: Any) -> str | None:
    """What is wrong with the row of this call; None when it agrees with eager or declines."""
    program, tensors = captured(func, args, kwargs)
    graph = to_tensor(program.graph, fallback="error")
    got = evaluate(graph, [to_numpy(t) for t in tensors])
    wanted = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        wrong = None if (str(func), i) in INEXACT else difference(a, b)
        if wrong and not nearer(a, b, func, args, kwargs, i):
            return f"{func} result {i}: {wrong}; {brief(args)} {brief(kwargs)}"
    return None


def nearer(got: np.ndarray, eager: torch.Tensor, func: Any, args: Any, kwargs: Any, i: int) -> bool:
    """Where eager itself is far from float64, being within twice its distance is enough."""
    if not eager.is_floating_point():
        return False
    args, kwargs = tree_map_only(torch.Tensor, doubled, (tuple(args), kwargs))
    out = tree_leaves(func(*args, **kwargs))
    exact = to_numpy([t for t in out if isinstance(t, torch.Tensor)][i]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        ours, theirs = (
            np.linalg.norm(v.astype(np.float64) - exact) for v in (got, to_numpy(eager))
        )
    return bool(ours <= 2 * theirs)


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def brief(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return {k: brief(v) for k, v in value.items()}
    return [brief(v) for v in value] if isinstance(value, list | tuple) else value


class Exercise:
    """Checks recorded calls, and counts them per row."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failures: list[str] = []

    def check(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = str(func)
        tensors = [t for t in tree_leaves([*args, out]) if isinstance(t, torch.Tensor)]
        if name not in NATIVE or self.calls[name] >= CALLS_PER_ROW:
            return
        if any(t.numel() > 20000 or t.is_complex() or t.is_sparse for t in tensors):
            return
        if "empty" in name:
            self.calls[name] += 1
            return  # the values are whatever was in memory
        with suppress(CaptureError, UnsupportedOpError), torch.no_grad(), _disable_current_modes():
            if wrong := failure(func, args, kwargs, out):
                self.failures.append(wrong)
            self.calls[name] += 1

    def run(self, program: Callable[[], Any], backward: bool = False) -> None:
        with Recorder(self.check):
            out = program()
            if not backward:
                return
            ends = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
            with suppress(RuntimeError):  # of a derivative that torch does not have
                torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])


def torch_samples(dtype: torch.dtype) -> Iterator[tuple[Callable[[], Any], bool]]:
    """Calls from torch's own operator database."""
    for entry in operators().values():
        if any(part in entry.name for part in SKIPPED) or dtype not in entry.supported_dtypes(
            "cpu"
        ):
            continue
        backward = dtype in (torch.float32, torch.bfloat16) and entry.supports_autograd
        torch.manual_seed(0)  # no row's draws change what others are given
        samples = entry.sample_inputs_func(entry, "cpu", dtype, backward)
        for sample, _ in zip(samples, range(16 if dtype is torch.float32 else 6), strict=False):
            yield lambda e=entry, s=sample: e(s.input, *s.args, **s.kwargs), backward


@cache
def exercise(dtype: torch.dtype) -> Exercise:
    done = Exercise()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program, backward in torch_samples(dtype):
            with suppress(RuntimeError, NotImplementedError):  # of samples torch does not run
                done.run(program, backward)
    return done


@cache
def exercise_programs() -> Exercise:
    torch.manual_seed(0)
    done = Exercise()
    for program in PROGRAMS:
        done.run(program, backward=True)
    with torch.no_grad():
        for func, args, kwargs in COMPOSITES():
            done.check(func, args, kwargs, func(*args, **kwargs))
    return done


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_agree_with_eager(dtype: torch.dtype) -> None:
    assert not exercise(dtype).failures


def test_programs_agree_with_eager() -> None:
    assert not exercise_programs().failures


def test_every_row_is_exercised() -> None:
    called = exercise(torch.float32).calls + exercise_programs().calls
    marks = [name for name in NATIVE if name.startswith("weft.")]  # of gradients: tests/gradients
    others = (*OF_PROGRAMS, *marks)
    assert not [name for name in NATIVE if not called[name] and name not in others]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_eps_of_rms_norm_is_that_of_what_it_computes_in(dtype: torch.dtype) -> None:
    x, norm = torch.full((4, 64), 1e-3).to(dtype), torch.nn.RMSNorm(64, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(weft.compile(norm)(x), norm(x))
