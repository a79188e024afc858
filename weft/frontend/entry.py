"""One specialisation of a callable: its graph, what runs it, and the code that enters it.

The entering code is generated, so that a call whose tensors match costs about a microsecond:

    def enter(flat):                                  # for f(x) with one parameter
        try:
            if len(flat) != 1 or not check(flat[0], home0["weight"]) or ...: return MISS
        except (KeyError, TypeError): return MISS
        tensors = [flat[0], home0["weight"]]
        results = run(tensors)
        return results[0]
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from weft.frontend.capture import CONSTANTS, modules_of
from weft.frontend.graph import Captured, Leaf, Placeholder, Runner
from weft.frontend.signature import State, autocasts, tensor_check

MISS = object()
Build = Callable[[Captured], Runner]


@dataclass
class Entry:
    """`call(args, kwargs, flat)` runs it; `hot(args)` too, or returns MISS where it must not."""

    call: Callable[[tuple[Any, ...], dict[str, Any], list[Any]], Any]
    state: State
    hot: Callable[[Sequence[Any]], Any] | None = None


def direct_entry(
    fn: Callable[..., Any], captured: Captured, runner: Runner, flat: Sequence[Any]
) -> Entry:
    modules = [*modules_of(fn).values()]
    state = State.of(modules, [p.home for p in captured.placeholders if p.home is not None])
    enter = _generate(captured, runner, None)
    hot = _hot(captured, runner, state, flat)
    return Entry(lambda args, kwargs, flat: enter(flat), state, hot)


def _hot(
    captured: Captured, runner: Runner, state: State, flat: Sequence[Any]
) -> Callable[[Sequence[Any]], Any] | None:
    """The guarded entry for positional arguments that are tensors and plain constants."""
    args_tree, kwargs_tree = captured.in_tree.children()
    plain = all(child.is_leaf() for child in args_tree.children())
    if not plain or kwargs_tree.num_leaves or captured.overlapping or any(autocasts()):
        return None
    tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
    stored = [home[key] for home, key in state.homes]
    check = tensor_check([*tensors, *stored])
    if check is None or not state.same_modules():
        return None
    return _generate(captured, runner, (state, check, flat))


class _Names:
    """Names for the objects that generated code refers to."""

    def __init__(self, **fixed: Any) -> None:
        self.env: dict[str, Any] = dict(fixed)
        self.seen: dict[int, str] = {}

    def __call__(self, base: str, thing: Any) -> str:
        if id(thing) not in self.seen:
            self.seen[id(thing)] = f"{base}{len(self.env)}"
            self.env[self.seen[id(thing)]] = thing
        return self.seen[id(thing)]


def _generate(
    captured: Captured, runner: Runner, guards: tuple[State, Any, Sequence[Any]] | None
) -> Callable[[Sequence[Any]], Any]:
    names = _Names(MISS=MISS, run=runner, unflatten=tree_unflatten)
    lines = ["def enter(flat):"]
    if guards is not None:
        lines += _guard_lines(captured, names, *guards)
    inputs = ", ".join(_input(p, names) for p in captured.placeholders)
    lines += [f"    tensors = [{inputs}]", "    results = run(tensors)"]
    lines += [f"    return {_output(captured, names)}"]
    exec("\n".join(lines), names.env)
    return names.env["enter"]


def _guard_lines(
    captured: Captured, names: _Names, state: State, check: Any, flat: Sequence[Any]
) -> list[str]:
    tests = [f"len(flat) != {len(flat)}"]
    for i, leaf in enumerate(flat):
        if not isinstance(leaf, torch.Tensor):
            assert isinstance(leaf, CONSTANTS)
            tests += [f"type(flat[{i}]) is not {names('type', type(leaf))}"]
            exact = isinstance(leaf, (float, complex))
            mine, wanted = (f"repr(flat[{i}])", repr(leaf)) if exact else (f"flat[{i}]", leaf)
            tests += [f"{mine} != {names('constant', wanted)}"]
    tensors = [f"flat[{i}]" for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]
    if captured.mutations and len(tensors) > 1:
        storages = ", ".join(f"{t}.untyped_storage()._cdata" for t in tensors)
        tests.append(f"len({{{storages}}}) != {len(tensors)}")
    tensors += [f"{names('home', home)}[{key!r}]" for home, key in state.homes]
    tests.append(f"not {names('check', check)}({', '.join(tensors)})")
    tests += [f"{names('module', d)}['training'] is not {flag}" for d, flag in state.training]
    for live, old in state.children:
        tests.append(f"[*{names('children', live)}.values()] != {names('old', old)}")
    return [
        "    try:",
        f"        if {' or '.join(tests)}:",
        "            return MISS",
        "    except (AttributeError, KeyError, TypeError):",
        "        return MISS",
    ]


def _input(p: Placeholder, names: _Names) -> str:
    if p.home is not None:
        return f"{names('home', p.home[0])}[{p.home[1]!r}]"
    if p.position is None:
        return names("tensor", p.tensor)
    source = f"flat[{p.position}]"
    return source if p.region is None else f"{names('region', p.region)}.of({source})"


def _output(captured: Captured, names: _Names) -> str:
    leaves = [_leaf(leaf, names) for leaf in captured.leaves]
    tree = captured.out_tree
    if tree.is_leaf():
        return leaves[0]
    if tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children()):
        inside = "".join(f"{leaf}, " for leaf in leaves)
        return f"({inside})" if tree.type is tuple else f"[{inside}]"
    return f"unflatten([{', '.join(leaves)}], {names('tree', tree)})"


def _leaf(leaf: Leaf, names: _Names) -> str:
    if leaf.kind == "constant":
        return names("constant", leaf.constant)
    tensor = f"{'results' if leaf.kind == 'result' else 'tensors'}[{leaf.index}]"
    return tensor if leaf.geometry is None else f"{names('view', leaf.geometry)}.of({tensor})"
