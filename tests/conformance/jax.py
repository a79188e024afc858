"""Runs JAX's own cases of its primitives: python -m tests.conformance.jax [--compiled] [GROUP ...]

The harness in JAX's wheel has a function and its arguments for each use of each primitive. Those of
f32, i32 and bool are planned by weft/jax and run by torch, or with --compiled through weft.compile,
beside JAX itself. Prints a table by group; ends with 1 where less than nine tenths are right.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from weft.core.errors import WeftError, sentence
from weft.jax.convert import from_jax
from weft.jax.library import is_key, library, to_jax, to_torch, traced
from weft.jax.plan import planned

DTYPES = ("float32", "int32", "bool")
FLOOR = {"float32": 1e-5, "complex64": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
WORST = 0.9  # of the cases are right, at least


def harnesses() -> list[Any]:
    """The cases of these dtypes that JAX itself runs on a CPU."""
    from jax._src.internal_test_util.test_harnesses import all_harnesses

    chosen = [h for h in all_harnesses if np.dtype(h.dtype).name in DTYPES]
    return [h for h in chosen if h.filter("cpu")]


def outcome(harness: Any, compiled: bool) -> str:
    """ "" where weft gives what JAX gives; else why not."""
    jax = library().jax
    args = harness.dyn_args_maker(np.random.RandomState(0))
    try:
        expected = jax.jit(harness.dyn_fun)(*args)
    except Exception as error:
        return f"skip: JAX raises {type(error).__name__}"
    try:
        found = run_compiled(harness.dyn_fun, args) if compiled else run(harness.dyn_fun, args)
    except WeftError as error:
        return f"error: {sentence(error)}"
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
    leaves = jax.tree_util.tree_leaves
    return compare(harness, leaves(found), leaves(expected))


def run(fn: Any, args: Sequence[Any]) -> Any:
    """By torch, one call after the other."""
    jax = library().jax
    arrays = [jax.numpy.asarray(a) if not hasattr(a, "dtype") else a for a in args]
    jaxpr, tree = traced(fn, arrays, {})
    leaves = [to_torch(jax.numpy.asarray(x)) for x in jax.tree_util.tree_leaves(arrays)]
    found = planned(jaxpr).run(leaves)
    made = [to_jax(t, a.dtype) for t, a in zip(found, jaxpr.out_avals, strict=True)]
    return jax.tree_util.tree_unflatten(tree, made)


def run_compiled(fn: Any, args: Sequence[Any]) -> Any:
    return from_jax(fn)(*args)


def compare(harness: Any, found: Sequence[Any], expected: Sequence[Any]) -> str:
    one_of = ONE_OF.get(harness.group_name)
    if one_of is not None:
        found, expected = one_of(harness, found), one_of(harness, expected)
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        if f.shape != e.shape or f.dtype != e.dtype:
            return f"wrong: result {i} is {f.dtype}{f.shape}, not {e.dtype}{e.shape}"
        if is_key(e.dtype):
            f, e = map(library().jax.random.key_data, (f, e))
        problem = differ(np.asarray(f), np.asarray(e))
        if problem:
            return f"wrong: result {i}: {problem}"
    return ""


# --- results of which there are several right ones, as one of them --------------------------------


def _cholesky(harness: Any, results: Sequence[Any]) -> list[Any]:
    """The primitive says nothing of the upper triangle."""
    return [np.tril(np.asarray(r)) for r in results]


def _sort(harness: Any, results: Sequence[Any]) -> list[Any]:
    """Equal keys in any order: rows of all operands are in order of all of them."""
    if harness.params["is_stable"] or len(results) == 1:
        return [*results]
    arrays = [np.asarray(r) for r in results]
    order = np.lexsort(arrays[::-1])
    assert (np.diff(arrays[0]) >= 0).all()
    return [a[order] for a in arrays]


def _phased(vectors: np.ndarray) -> np.ndarray:
    """Columns turned so that the element that is largest is positive."""
    at = np.argmax(np.abs(vectors).round(4), axis=-2, keepdims=True)
    top = np.take_along_axis(vectors, at, -2)
    return vectors * np.where(top == 0, 1, np.conj(top) / np.where(top == 0, 1, np.abs(top)))


def _svd(harness: Any, results: Sequence[Any]) -> list[Any]:
    """Singular values, the product of all three, and that both sides are orthogonal."""
    s, *sides = map(np.asarray, results)
    if not sides or 0 in s.shape:
        return [s]
    u, v = sides
    k = s.shape[-1]
    whole = (u[..., :k] * s[..., None, :]) @ v[..., :k, :]
    squares = [np.swapaxes(u.conj(), -1, -2) @ u, v @ np.swapaxes(v.conj(), -1, -2)]
    return [s, whole, *squares]


def _eig(harness: Any, results: Sequence[Any]) -> list[Any]:
    values, *vectors = map(np.asarray, results)
    return [values, *map(_phased, vectors)] if 0 not in values.shape else [values]


def _eigh(harness: Any, results: Sequence[Any]) -> list[Any]:
    vectors, values = map(np.asarray, results)
    return [_phased(vectors) if vectors.size else vectors, values]


ONE_OF = {"cholesky": _cholesky, "sort": _sort, "svd": _svd, "eig": _eig, "eigh": _eigh}


def differ(f: np.ndarray, e: np.ndarray) -> str:
    """Why two arrays are not equal: floats may differ by the floor of their dtype, in norm."""
    if e.dtype.kind not in "fc":
        wrong = np.argwhere(f != e)
        return "" if not len(wrong) else f"{len(wrong)} of {e.size} differ, first at {wrong[0]}"
    if not np.array_equal(np.isnan(f), np.isnan(e)):
        return "NaN in other places"
    infinite = np.isinf(e)
    if not np.array_equal(f[infinite], e[infinite]) or np.isinf(f[~infinite]).any():
        return "infinity in other places"
    finite = np.isfinite(e)
    norm = np.linalg.norm(e[finite].astype(np.complex128))
    off = np.linalg.norm(f[finite].astype(np.complex128) - e[finite])
    off = off / norm if norm else off
    return "" if off <= FLOOR[e.dtype.name] else f"relative error {off:.2e}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.jax", description=__doc__)
    parser.add_argument("groups", nargs="*", help="only groups whose name holds one of these")
    parser.add_argument("--compiled", action="store_true", help="through weft.compile")
    parser.add_argument("--every", type=int, default=1, help="only one case in so many")
    parser.add_argument("-v", "--verbose", action="store_true", help="name what is not right")
    given = parser.parse_args(arguments)
    console, counts = Console(soft_wrap=True), dict[str, Counter[str]]()
    reasons: dict[str, Counter[str]] = {}
    for harness in harnesses()[:: given.every]:
        group = harness.group_name
        if given.groups and not any(g in group for g in given.groups):
            continue
        found = outcome(harness, given.compiled)
        word = found.partition(":")[0] or "right"
        counts.setdefault(group, Counter())[word] += 1
        if found:
            reasons.setdefault(group, Counter())[found] += 1
            if given.verbose:
                console.print(f"{harness.fullname[:150]}: {found}", markup=False, highlight=False)
    return report(console, counts, reasons)


def report(
    console: Console, counts: dict[str, Counter[str]], reasons: dict[str, Counter[str]]
) -> int:
    words = ("right", "wrong", "error", "skip")
    table, total = Table("group", *words, "most often", box=None), Counter[str]()
    for group, mine in sorted(counts.items()):
        total.update(mine)
        often = reasons[group].most_common(1)[0][0] if group in reasons else ""
        if often:
            table.add_row(group, *(str(mine[w]) for w in words), often[:110])
    table.add_row("all", *(str(total[w]) for w in words))
    console.print(table)
    ran = sum(total.values()) - total["skip"]
    console.print(f"{total['right']} of {ran} right: {total['right'] / max(ran, 1):.1%}")
    return int(total["right"] < WORST * ran)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
