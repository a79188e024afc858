"""Dynamo's guards on the tensors of objects as one: parameters, gradients, an optimiser's state.

    def find(L):
        v0 = G['opt'].param_groups[0]['params']
        v1 = [*dict.values(G['opt'].state)]
        return (v0[0], v0[0].grad, v1[0]['exp_avg'], ...)

Dynamo has a manager in C++ and two guards for each, which fill a cache: for the 1,000 tensors of
AdamW over 200 parameters it takes 174 us to check them. Here one function finds all of them, as
Dynamo's guards in Python do, and torch's TensorGuards compares what TENSOR_MATCH does, and that
none is there twice. What leads to them (types and lengths of containers) Dynamo guards as before,
and first. So it is where these are all tensors of a frame: then the call needs no other.
"""

# This file reaches into torch: Dynamo has no public names for its guards.
# pyright: reportPrivateUsage=false

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from threading import get_ident
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards
from torch._dynamo import guards
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import ChainedSource, ConstDictKeySource, DictGetItemSource

from weft.frontend.dynamo_mended import unmarked_of_object

FEW = 16  # tensors, for which Dynamo's own guards are as fast
HELD = "weft_tensors", "weft_dicts"  # of a GuardBuilder: guards that wait until all are known
KEYS = "guard_on_dict_keys_and_ignore_order"
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Places:
    """Python text that finds what Dynamo's sources name, each part of it once.

    A value of a dict that Dynamo knows by number is read from a list of all: keys that are tensors
    have a hash in Python.
    """

    def __init__(self, sources: Iterable[Any]) -> None:
        self.lines: list[str] = []
        self.known: dict[Any, str] = {}
        self.uses: Counter[Any] = Counter()
        for source in sources:
            while source is not None:
                self.uses[source] += 1
                source = _base(source) if self.uses[source] == 1 else None

    def of(self, source: Any) -> str:
        """An expression for a source: a variable where it is read again."""
        if source in self.known:
            return self.known[source]
        base = _base(source)
        text = source.name if base is None else _text(source).format(self.of(base))
        if self.uses[source] > 1:
            name = self.known[source] = f"v{len(self.known)}"
            self.lines.append(f"{name} = {text}")
            return name
        return text


VALUES = "[*dict.values({0})]"


def _base(source: Any) -> Any:
    """What a source reads: another one, or the values of a dict as (VALUES, dict)."""
    if isinstance(source, tuple):
        return source[1]
    if not isinstance(source, ChainedSource):
        return None
    return (VALUES, source.base) if _is_value(source) else source.base


def _text(source: Any) -> str:
    """How a source reads its base, {0}."""
    if isinstance(source, tuple):
        return VALUES
    return f"{{0}}[{source.index.index}]" if _is_value(source) else source._name_template


def _is_value(source: Any) -> bool:
    key = source.index if isinstance(source, DictGetItemSource) else None
    return isinstance(key, ConstDictKeySource) and key.base == source.base


# --- the guards -----------------------------------------------------------------------------------


def _guard_at_once() -> None:
    """Have Dynamo hold back the guards on tensors of objects until it has made all others.

    And what makes sure of each key of a dict: all that are tensors are found by their keys.
    """
    kinds: Any = GuardBuilder, guards.CheckFunctionManager
    own = [(kinds[0], "TENSOR_MATCH"), (kinds[0], KEYS), (kinds[1], "build_guards")]
    plain: list[Any] = [getattr(kind, name, None) for kind, name in own]
    tensor, keys, build = plain
    if None in plain or not hasattr(ChainedSource, "_name_template"):
        return

    @wraps(tensor)
    def match(self: Any, guard: Any, value: Any = None) -> None:
        if guards.match_on_id_for_tensor(guard) or not unmarked_of_object(self, guard):
            tensor(self, guard, value)
        else:
            vars(self).setdefault(HELD[0], []).append((guard, value))

    @wraps(keys)
    def present(self: Any, example: Any, guard: Any) -> None:
        vars(self).setdefault(HELD[1], []).append((example, guard))

    @wraps(build)
    def built(self: Any, *args: Any, **named: Any) -> Any:
        builder, manager = build(self, *args, **named)
        held, dicts = (vars(builder).pop(name, []) for name in HELD)
        done = len(held) >= FEW and _guarded(builder, [guard for guard, _ in held])
        found = {guard.originating_source for guard, _ in held} if done else set[Any]()
        for example, guard in dicts:
            if not _finds_keys(found, guard.originating_source, example):
                keys(builder, example, guard)
        for guard, value in held if not done else ():
            tensor(builder, guard, value)
        return builder, manager

    kinds[0].TENSOR_MATCH, kinds[1].build_guards = match, built
    setattr(kinds[0], KEYS, present)


def _finds_keys(found: Collection[Any], source: Any, example: dict[Any, Any]) -> bool:
    """Whether every item of a dict is found by its key."""
    keys = [*dict.keys(example)]
    named = all(isinstance(key, str) for key in keys)
    return named and all(DictGetItemSource(source, key) in found for key in keys)


def _guarded(builder: Any, held: Sequence[Any]) -> bool:
    """Guard what is held as one; False where that is not to be, or doesn't hold here and now.

    Where other tensors have guards, those are faster, and have to tell them all apart.
    """
    graph, scope = builder.check_fn_manager.output_graph, builder.scope
    if graph is None or graph.export or builder.no_tensor_aliasing_names:
        return False
    sources = [guard.originating_source for guard in held]
    find = _finder(sources, scope["G"])
    tensors = find(scope["L"])
    if any(type(t) not in PLAIN for t in tensors):
        return False
    facts = [graph.input_source_to_sizes_strides[source] for source in sources]
    sizes, strides = (
        [guards.convert_to_concrete_values(fact[name]) for fact in facts]
        for name in ("size", "stride")
    )
    make: Any = TensorGuards  # its stub has the wrong types
    same = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check = Tensors(find, sources, same, [guard.name for guard in held])
    passes = check(scope["L"])
    if passes:
        builder.guard_manager.root.add_epilogue_lambda_guard(check.__call__, check.told, None)
        builder.guard_manager.tensors = check
    return passes


def _finder(sources: Sequence[Any], scope: Any) -> Callable[[Any], Any]:
    """A function from a frame's variables to the tensors that sources are."""
    places = Places(sources)
    found = [*map(places.of, sources)]
    text = "".join(f"    {line}\n" for line in (*places.lines, f"return ({', '.join(found)},)"))
    namespace = {**guards._get_closure_vars(), "G": scope}
    exec(compile(f"def find(L):\n{text}", "<weft guards>", "exec"), namespace)
    return namespace["find"]  # type: ignore[return-value]


class Tensors:
    """Whether a frame's tensors are the `same`; where one isn't, `told` says which and how.

    In a thread that has an item of `found`, that is what was found where they are: for the call.
    """

    def __init__(
        self, find: Callable[[Any], Any], sources: Sequence[Any], same: Any, names: Sequence[str]
    ) -> None:
        self.find, self.sources, self.same, self.names = find, sources, same, names
        self.compare: Callable[..., bool] = same.check
        self.plain = f"{len(sources)} tensors of objects are as they were"
        self.told = [self.plain]
        self.found: dict[int, tuple[Any, ...]] = {}

    def __call__(self, variables: Any) -> bool:
        found = self.find(variables)
        if self.compare(*found):
            if self.found and (thread := get_ident()) in self.found:
                self.found[thread] = found
            return True
        why = self.same.check_verbose(*found, tensor_check_names=self.names)
        self.told[0] = why if isinstance(why, str) else self.plain
        return False


_guard_at_once()
