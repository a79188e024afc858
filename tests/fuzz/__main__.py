"""Runs random programs until the minutes are over; prints those that are wrong, with their seed."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

import weft
from tests.conformance.judge import compare
from tests.conformance.rounding import spread as moved_by_rounding
from tests.fuzz.programs import make, scope

ENTRIES: dict[str, Callable[[Any], Any]] = {
    "weft.compile": weft.compile,
    "torch.compile": lambda f: torch.compile(f, backend="weft", dynamic=False),
}

PROGRAMS = 2000  # of one process: what it loads stays mapped
NOTHING = 1e-4  # what is left of numbers about 1 where they cancel


def function(text: str) -> Callable[..., Any]:
    names = scope()
    exec(compile(text, "<fuzz>", "exec"), names)
    return names["program"]


def outcome(
    f: Callable[..., Any], inputs: list[torch.Tensor], grads: bool, dtype: Any = None
) -> Any:
    """Results, the inputs afterwards, and gradients; all as copies, in double where asked."""

    def fresh(t: torch.Tensor) -> torch.Tensor:
        wide = t.dtype if dtype is None or not t.is_floating_point() else dtype
        new = torch.empty_strided(t.shape, t.stride(), dtype=wide)
        new.untyped_storage().fill_(0)  # gaps too, which as_strided reads
        return new.copy_(t)

    copies = [fresh(t) for t in inputs]
    for t in copies:
        t.requires_grad_(grads and t.is_floating_point())
    with default_dtype(dtype):
        out = f(*copies)
    results = [t for t in out if t.requires_grad]
    found: Any = ()
    if grads and results:
        total: Any = sum((t * t).sum() for t in results)
        found = torch.autograd.grad(total, copies, allow_unused=True)
    detached = tuple(t.detach() for t in out)
    return [detached, [c.detach() for c in copies], list(found)]


def problem(seed: int, entry: str) -> tuple[str, str]:
    text, inputs, grads = make(seed)
    f = function(text)
    try:
        eager = outcome(f, inputs, grads)
    except Exception:  # eager refuses the gradients
        return text, ""
    spread = None
    try:
        exact = outcome(f, inputs, grads, torch.float64)
        if any(t.dtype is torch.float32 for t in inputs):
            spread = moved_by_rounding(lambda: outcome(f, inputs, grads, torch.float64), exact)
    except Exception:  # float64 takes another path, as where a program asks for its dtype
        exact = None
    low = any(word in text for word in ("half", "bfloat16")) or any(
        t.dtype is torch.bfloat16 for t in inputs
    )
    judge = rough if low else partial(compare, exact=exact, spread=spread)
    try:
        ours = compiled(ENTRIES[entry], f, inputs, grads)
        wrong = judge(ours, eager)
    except Exception as error:
        ours, wrong = error, f"error: {sentence(error)}"
    if not wrong:
        return text, ""
    try:  # what AOTAutograd does by itself, which differentiates and functionalises for weft
        alone = compiled(aot_alone, f, inputs, grads)
        same = not isinstance(ours, Exception) and not judge(alone, ours)
    except Exception as error:
        same = sentence(error) == sentence(ours)
    return text, f"limit: {wrong}" if same else wrong


@contextmanager
def default_dtype(dtype: torch.dtype | None) -> Generator[None, None, None]:
    """The dtype of what a program makes itself, such as torch.ones(3)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def aot_alone(f: Any) -> Any:
    return torch.compile(f, backend="aot_eager", dynamic=False)


def compiled(entry: Any, f: Any, inputs: list[torch.Tensor], grads: bool) -> Any:
    torch.compiler.reset()
    return outcome(entry(f), inputs, grads)


def sentence(error: Any) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"


def rough(ours: Any, eager: Any) -> str:
    """Of programs that round to 16 bits on the way: the same but for some such roundings."""
    from torch.utils import _pytree as pytree

    for a, b in zip(pytree.tree_leaves(ours), pytree.tree_leaves(eager), strict=True):
        if a is None or b is None:
            if a is not b:
                return "a gradient is missing"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{list(a.shape)} where eager gives {b.dtype}{list(b.shape)}"
        size = b.double()[b.double().isfinite()].abs().max() if b.double().isfinite().any() else 1.0
        if a.is_floating_point() and not torch.allclose(
            a.double(), b.double(), 0.05, 0.05 * float(size) + NOTHING, True
        ):
            return "not close"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--one", action="store_true", help="only that program, printed")
    parser.add_argument("--counts", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end, counts = time.time() + 60 * given.minutes, Counter[str](json.loads(given.counts))
    for seed in itertools.count(given.seed):
        entry = list(ENTRIES)[seed % 2]
        text, wrong = problem(seed, entry)
        counts[(wrong.split(":")[0] if wrong else "right")] += 1
        if wrong:
            print(f"seed {seed}, {entry}: {wrong}\n{text}", flush=True)
        if given.one:
            print(text, wrong or "right")
        if given.one or time.time() > end:
            break
        if seed - given.seed == PROGRAMS:
            minutes, so_far = str((end - time.time()) / 60), json.dumps(counts)
            command = ["--seed", str(seed + 1), "--minutes", minutes, "--counts", so_far]
            os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz", *command])
    limits, bad = counts["limit"], counts.total() - counts["right"] - counts["limit"]
    print(f"{counts.total()} programs, {bad} wrong or errors, {limits} as AOTAutograd alone")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
