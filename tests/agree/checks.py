"""One program, every executor: eager, float64, the interpreter of each level, and the C.

check(fn, args)      # raises Disagreement naming the executor that is off
A float result may be twice as far from float64 as eager is, or FLOOR; all else is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from weft import driver
from weft.calling import compiled
from weft.core.passes import PassLog
from weft.frontend.graph import Captured, Known
from weft.interpret import calls
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate
from weft.text import parse_program, print_program

FLOOR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
WIDENED = 1e-6  # of interpreters in float64: f32 constants and summation order stay visible
LEVELS = ("torch", "tensor", "loop", "tile", "kernel")


class Disagreement(AssertionError):
    """An executor gave something else than the reference."""


class Recorder(driver.Builder):
    """The driver's builder, which keeps what it was given and what the program ran on."""

    captured: list[Captured]
    given: list[list[torch.Tensor]]

    def __call__(self, captured: Captured) -> Any:
        runner = super().__call__(captured)

        def run(tensors: list[torch.Tensor]) -> Any:
            self.__dict__.setdefault("given", []).append([t.detach().clone() for t in tensors])
            return runner(tensors)

        run.artifact = runner.artifact  # type: ignore[attr-defined]
        self.__dict__.setdefault("captured", []).append(captured)
        return run


def fresh(args: Sequence[Any]) -> list[Any]:
    """Arguments of their own, with the strides and the overlaps they came with."""

    def one(a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return a
        whole = torch.empty(0, dtype=a.dtype).set_(a.untyped_storage())  # type: ignore[call-overload]
        return whole.clone().as_strided(a.shape, a.stride(), a.storage_offset())

    return [one(a) for a in args]


def check(fn: Callable[..., Any], args: Sequence[Any], externs: bool = False) -> None:
    """Run it everywhere and compare."""
    ours, theirs = fresh(args), fresh(args)
    expected = fn(*theirs)
    recorder = Recorder(driver.Options())
    f = compiled(fn, recorder)
    with torch.no_grad():
        out = f(*ours)
    if f.reasons or len(recorder.captured) != 1:
        raise Disagreement(f"not one captured graph: {f.reasons}")
    artifact = f.programs[0].artifact  # type: ignore[attr-defined]
    if artifact.report.externs and not externs:
        raise Disagreement(f"library calls: {artifact.report.externs}")
    given = recorder.given[0]
    reference = check_levels(artifact.levels(), given)
    check_fusions(artifact.levels().program("torch"), recorder.captured[0], given, reference)
    compare_trees(fn, args, out, expected, ours, theirs)


def check_levels(
    levels: Any, given: list[torch.Tensor], names: Sequence[str] = LEVELS
) -> list[np.ndarray]:
    """Verify, print and parse, and interpret every level; what float64 gives."""
    expected = [
        driver.to_numpy(t) for t in calls.evaluate(levels.program("torch"), given, double=True)
    ]
    for level in names:
        program = levels.program(level)
        driver.VERIFY[level](program)
        text = print_program(program)
        if print_program(parse_program(text)) != text:
            raise Disagreement(f"{level}: the text does not come back the same")
        if level != "torch":
            close(f"{level} in float64", interpreted(program, given, True), expected)
    return expected


def interpreted(program: Any, given: list[torch.Tensor], widen: bool) -> list[np.ndarray]:
    arrays = [driver.to_numpy(t) for t in given]
    if program.level == "tensor":
        return list(evaluate(program, arrays, widen=widen))
    run = kernel_interpret.run if program.level == "kernel" else interpret.run
    return run(program, arrays, widen=widen)


def check_fusions(
    graph: Any, captured: Captured, given: list[torch.Tensor], expected: list[np.ndarray]
) -> None:
    """The same numbers however the graph is cut into kernels, and for any vectors."""
    known = Known(captured.layouts)
    for fuse, target in (("none", "cpu:avx2"), ("all", "cpu:plain")):
        levels = driver.lower(graph, driver.Options(target, fuse), PassLog(), known)
        driver.VERIFY["loop"](levels.program("loop"))
        kernels = levels.program("kernel")
        driver.VERIFY["kernel"](kernels)
        close(f"kernel, fuse={fuse}", interpreted(kernels, given, True), expected)


def close(who: str, got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Interpreters in float64 against torch in float64."""
    if len(got) != len(expected):
        raise Disagreement(f"{who}: {len(got)} results, not {len(expected)}")
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        where = f"{who}, result {i}"
        if g.shape != e.shape:
            raise Disagreement(f"{where}: shape {g.shape}, not {e.shape}")
        if e.dtype.kind in "fV":
            same_specials(where, g.astype(np.float64), e)
            off = distance(g.astype(np.float64), e)
            if off > WIDENED:
                raise Disagreement(f"{where}: relative error {off:.2e}")
        elif not np.array_equal(g, e):
            raise Disagreement(f"{where}: {count(g, e)}")


def count(g: np.ndarray, e: np.ndarray) -> str:
    wrong = np.argwhere(g != e)
    at = tuple(wrong[0])
    return f"{len(wrong)} of {g.size} differ, first at {at}: {g[at]}, not {e[at]}"


def distance(g: np.ndarray, e: np.ndarray) -> float:
    """||g - e|| / ||e|| over the finite elements."""
    finite = np.isfinite(e) & np.isfinite(g)
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(e[finite]))
        off = float(np.linalg.norm((g - e)[finite]))
    return off / norm if norm else off


def same_specials(where: str, g: np.ndarray, e: np.ndarray) -> None:
    if not np.array_equal(np.isnan(g), np.isnan(e)):
        raise Disagreement(f"{where}: NaN in other places, {count(np.isnan(g), np.isnan(e))}")
    infinite = np.isinf(e)
    if not np.array_equal(np.isinf(g), infinite) or not np.array_equal(g[infinite], e[infinite]):
        raise Disagreement(f"{where}: infinity in other places")


# --- the compiled program against eager ---------------------------------------------------------


def compare_trees(
    fn: Callable[..., Any], args: Sequence[Any], out: Any, expected: Any, ours: Any, theirs: Any
) -> None:
    """Results and written arguments: values, dtypes, strides and aliasing."""
    mine, tree = tree_flatten(out)
    eager, wanted = tree_flatten(expected)
    if tree != wanted:
        raise Disagreement(f"C: the results are nested as {tree}, not {wanted}")
    doubles = [a.double() if is_float(a) else a for a in fresh(args)]
    exact, _ = tree_flatten(in_float64(fn, doubles))
    for i, (m, e, d) in enumerate(zip(mine, eager, exact, strict=True)):
        compare(f"C, result {i}", m, e, d)
        if isinstance(m, torch.Tensor):
            alias(f"C, result {i}", (m, ours), (e, theirs))
    for i, (m, e, d) in enumerate(zip(ours, theirs, doubles, strict=True)):
        compare(f"C, argument {i}", m, e, d)


def in_float64(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Factories too make float64."""
    torch.set_default_dtype(torch.float64)
    try:
        return fn(*args)
    finally:
        torch.set_default_dtype(torch.float32)


def is_float(a: Any) -> bool:
    return isinstance(a, torch.Tensor) and a.is_floating_point()


def alias(where: str, mine: tuple[Any, Any], eager: tuple[Any, Any]) -> None:
    """A result shares memory with the same arguments as eager's does."""

    def shared(result: torch.Tensor, args: Sequence[Any]) -> list[bool]:
        start = result.untyped_storage().data_ptr()
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        return [a.untyped_storage().data_ptr() == start != 0 for a in tensors]

    if shared(*mine) != shared(*eager):
        raise Disagreement(f"{where}: shares memory with {shared(*mine)}, not {shared(*eager)}")


def steps(tensor: torch.Tensor) -> list[int]:
    """Strides of the axes that have a second element."""
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def compare(where: str, mine: Any, eager: Any, exact: Any) -> None:
    if not isinstance(eager, torch.Tensor):
        if mine != eager:
            raise Disagreement(f"{where}: {mine}, not {eager}")
        return
    for fact in ("dtype", "shape"):
        if getattr(mine, fact) != getattr(eager, fact):
            raise Disagreement(f"{where}: {fact} {getattr(mine, fact)}, not {getattr(eager, fact)}")
    if eager.numel() and steps(mine) != steps(eager):
        raise Disagreement(f"{where}: strides {mine.stride()}, not {eager.stride()}")
    if not eager.is_floating_point():
        if not torch.equal(mine, eager):
            raise Disagreement(f"{where}: {count(mine.numpy(), eager.numpy())}")
        return
    g, e, d = (t.detach().double().numpy() for t in (mine, eager, exact))
    same_specials(where, g, e)
    allowed = max(FLOOR[eager.dtype], 2 * distance(e, d))
    if distance(g, d) > allowed:
        raise Disagreement(f"{where}: relative error {distance(g, d):.2e}, allowed {allowed:.2e}")
