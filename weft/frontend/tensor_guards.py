"""Dynamo's guards on the tensors of objects as one: parameters, gradients, an optimiser's state.

    def find(L):
        v0 = G['opt'].param_groups[0]['params']
        v1 = [*dict.values(G['opt'].state)]
        return (v0[0], v0[0].grad, v1[0]['exp_avg'], ...)

Dynamo has a manager in C++ and two guards for each, which fill a cache: for the 1,000 tensors of
AdamW over 200 parameters it takes 174 us to check them. Here one function finds all of them, as
Dynamo's guards in Python do, and torch's TensorGuards compares what TENSOR_MATCH does, and that
none is there twice. What leads to them (types and lengths of containers) Dynamo guards as before,
and first. So it is where these are all tensors of a frame: then the call needs no other. On its way
the function makes sure of the dicts that are values of another, as an optimiser's state has them,
and that what was one object in two places is (DUPLICATE_INPUT).
"""

# This file reaches into torch: Dynamo has no public names for its guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from threading import get_ident
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards
from torch._dynamo import guards
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import (
    AttrSource,
    ChainedSource,
    ConstDictKeySource,
    DictGetItemSource,
)

from weft.frontend.dynamo_mended import unmarked_of_object

FEW = 16  # tensors, for which Dynamo's own guards are as fast
HELD = "weft_held"  # of a GuardBuilder: guards that wait until all are known
PAIRS = "DUPLICATE_INPUT"
PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Fact:
    """What `holds` of the object at one place, {0}, or at two; what is `said` where it doesn't."""

    places: tuple[Any, ...]
    holds: str
    said: str


class Places:
    """Python text that finds what Dynamo's sources name, each part of it once.

    A key or value of a dict that Dynamo knows by number is read from a list of all: keys that are
    tensors have a hash in Python.
    """

    def __init__(self, sources: Iterable[Any], facts: Sequence[Fact] = ()) -> None:
        self.lines: list[str] = []
        self.known: dict[Any, str] = {}
        self.uses: Counter[Any] = Counter()
        self.facts: dict[tuple[Any, ...], list[str]] = {}
        for number, fact in enumerate(facts):
            line = f"if not ({fact.holds}): return {number}"
            self.facts.setdefault(fact.places, []).append(line)
        for source in (*sources, *(place for fact in facts for place in fact.places)):
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
            self.check(source)
            return name
        return text

    def check(self, *places: Any) -> None:
        """Return early where a fact of these does not hold."""
        names = [*map(self.of, places)]
        self.lines += [line.format(*names) for line in self.facts.pop(places, ())]


KEYS_OF, VALUES = "[*dict.keys({0})]", "[*dict.values({0})]"


def _base(source: Any) -> Any:
    """What a source reads: another one, or the keys or values of a dict as (KEYS_OF, dict)."""
    if isinstance(source, tuple):
        return source[1]
    if not isinstance(source, ChainedSource):
        return None
    if isinstance(source, ConstDictKeySource):
        return KEYS_OF, source.base
    return (VALUES, source.base) if _is_value(source) else source.base


def _text(source: Any) -> str:
    """How a source reads its base, {0}."""
    if isinstance(source, tuple):
        return source[0]
    if isinstance(source, ConstDictKeySource):
        return f"{{0}}[{source.index}]"
    return f"{{0}}[{source.index.index}]" if _is_value(source) else source._name_template


def _is_value(source: Any) -> bool:
    key = source.index if isinstance(source, DictGetItemSource) else None
    return isinstance(key, ConstDictKeySource) and key.base == source.base


# --- the guards -----------------------------------------------------------------------------------


def _is_in_dict(builder: Any, guard: Any) -> bool:
    return type(builder.get(guard)) is dict and _is_value(guard.originating_source)


def _is_of_object(builder: Any, guard: Any, value: Any = None) -> bool:
    return not guards.match_on_id_for_tensor(guard) and unmarked_of_object(builder, guard)


def _is_tensor(builder: Any, guard: Any, attr: str) -> bool:
    return isinstance(getattr(builder.get(guard), attr, None), torch.Tensor)


def _finds_keys(found: Collection[str], example: dict[Any, Any], guard: Any) -> bool:
    """Whether every item of a dict is found by its key."""
    keys, source = [*dict.keys(example)], guard.originating_source
    named = all(isinstance(key, str) for key in keys)
    return named and all(DictGetItemSource(source, key).name in found for key in keys)


# Guards that wait until all are known: which, and whether a function that finds tensors by these
# names makes sure of one.
WAITING: dict[str, tuple[Callable[..., bool], Callable[..., bool]]] = {
    "TYPE_MATCH": (_is_in_dict, lambda found, guard: bool(found)),
    "SEQUENCE_LENGTH": (_is_in_dict, lambda found, guard: bool(found)),
    "guard_on_dict_keys_and_ignore_order": (lambda *_: True, _finds_keys),
    "HASATTR": (
        _is_tensor,
        lambda found, guard, attr: AttrSource(guard.originating_source, attr).name in found,
    ),
    "TENSOR_MATCH": (_is_of_object, lambda found, guard, value=None: guard.name in found),
}


def _guard_at_once() -> None:
    """Have Dynamo hold back the guards on tensors of objects until it has made all others.

    So with what a function that finds the tensors makes sure of: dicts in dicts, keys of dicts
    whose values are all tensors, attributes that are tensors, and objects that are in two places.
    """
    kinds: Any = GuardBuilder, guards.CheckFunctionManager
    plain: dict[str, Any] = {name: getattr(GuardBuilder, name, None) for name in WAITING}
    own = (kinds[0], PAIRS), (kinds[1], "build_guards")
    others: list[Any] = [getattr(kind, name, None) for kind, name in own]
    two, build = others
    if None in (*plain.values(), two, build) or not hasattr(ChainedSource, "_name_template"):
        return

    @wraps(two)
    def same(self: Any, guard: Any, source_b: Any) -> None:
        codes = self.object_aliasing_guard_codes
        known = len(codes)
        two(self, guard, source_b)
        if len(codes) > known:
            places = guard.originating_source, source_b
            _held(self, PAIRS).append(Fact(places, "{0} is {1}", codes[-1][1]))

    @wraps(build)
    def built(self: Any, *args: Any, **named: Any) -> Any:
        builder, manager = build(self, *args, **named)
        tensors = [guard for (guard, *_), _ in _held(builder, "TENSOR_MATCH")]
        done = len(tensors) >= FEW and _guarded(builder, tensors)
        found = {guard.name for guard in tensors} if done else set[str]()
        for name, (_, implied) in WAITING.items():
            for given, by_name in _held(builder, name):
                if not implied(found, *given, **by_name):
                    plain[name](builder, *given, **by_name)
        vars(builder).pop(HELD)
        return builder, manager

    for name, (waits, _) in WAITING.items():
        setattr(GuardBuilder, name, _waiting(name, plain[name], waits))
    setattr(kinds[0], PAIRS, same)
    kinds[1].build_guards = built


def _held(builder: Any, name: str) -> list[Any]:
    """The guards of a kind that wait, as the arguments that Dynamo makes each with."""
    return vars(builder).setdefault(HELD, {}).setdefault(name, [])


def _waiting(name: str, plain: Callable[..., None], waits: Callable[..., bool]) -> Any:
    @wraps(plain)
    def guard(self: Any, *given: Any, **named: Any) -> None:
        if waits(self, *given, **named):
            _held(self, name).append((given, named))
        else:
            plain(self, *given, **named)

    return guard


def _guarded(builder: Any, held: Sequence[Any]) -> bool:
    """Guard what is held as one; False where that is not to be, or doesn't hold here and now.

    Where other tensors have guards, those are faster, and have to tell them all apart.
    """
    graph, scope = builder.check_fn_manager.output_graph, builder.scope
    if graph is None or graph.export or builder.no_tensor_aliasing_names:
        return False
    sources = [guard.originating_source for guard in held]
    facts = [*_facts_of_dicts(builder), *_held(builder, PAIRS)]
    find = _finder(sources, facts, scope["G"])
    tensors = find(scope["L"])
    if type(tensors) is not tuple or any(type(t) not in PLAIN for t in tensors):
        return False
    layouts = [graph.input_source_to_sizes_strides[source] for source in sources]
    sizes, strides = (
        [guards.convert_to_concrete_values(layout[name]) for layout in layouts]
        for name in ("size", "stride")
    )
    make: Any = TensorGuards  # its stub has the wrong types
    same = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    told = [fact.said for fact in facts]
    check = Tensors(find, sources, same, [guard.name for guard in held], told)
    passes = check(scope["L"])
    if passes:
        builder.object_aliasing_guard_codes.clear()
        builder.guard_manager.root.add_epilogue_lambda_guard(check.__call__, check.told, None)
        builder.guard_manager.tensors = check
    return passes


def _facts_of_dicts(builder: Any) -> Iterator[Fact]:
    """What TYPE_MATCH and SEQUENCE_LENGTH that wait say of dicts."""
    for name, holds in (("TYPE_MATCH", "type({0}) is dict"), ("SEQUENCE_LENGTH", "len({0}) == ")):
        for (guard,), _ in _held(builder, name):
            text = holds if name == "TYPE_MATCH" else f"{holds}{len(builder.get(guard))}"
            yield Fact((guard.originating_source,), text, text.format(guard.name))


def _finder(
    sources: Sequence[Any], facts: Sequence[Fact], scope: Any
) -> Callable[[Any], tuple[Any, ...] | int]:
    """A function from a frame's variables to the tensors that sources are.

    It returns the number of a fact instead where that doesn't hold.
    """
    places = Places(sources, facts)
    found = [*map(places.of, sources)]
    for fact in facts:
        places.check(*fact.places)
    lines = (*places.lines, f"return ({', '.join(found)},)")
    text = "".join(f"    {line}\n" for line in lines)
    namespace = {**guards._get_closure_vars(), "G": scope}
    exec(compile(f"def find(L):\n{text}", "<weft guards>", "exec"), namespace)
    return namespace["find"]  # type: ignore[return-value]


class Tensors:
    """Whether a frame's tensors are the `same`; where one isn't, `told` says which and how.

    Where a fact does not hold, `find` gives its number instead of a tuple: `facts` are words. In a
    thread that has an item of `found`, that is what was found where they are: for the call.
    """

    def __init__(
        self,
        find: Callable[[Any], Any],
        sources: Sequence[Any],
        same: Any,
        names: Sequence[str],
        facts: Sequence[str] = (),
    ) -> None:
        self.find, self.sources, self.same, self.names = find, sources, same, names
        self.facts = facts
        self.compare: Callable[..., bool] = same.check
        self.plain = f"{len(sources)} tensors of objects are as they were"
        self.told = [self.plain]
        self.found: dict[int, tuple[Any, ...]] = {}

    def __call__(self, variables: Any) -> bool:
        found = self.find(variables)
        if type(found) is int:
            self.told[0] = self.facts[found]
            return False
        if self.compare(*found):
            if self.found and (thread := get_ident()) in self.found:
                self.found[thread] = found
            return True
        why = self.same.check_verbose(*found, tensor_check_names=self.names)
        self.told[0] = why if isinstance(why, str) else self.plain
        return False


_guard_at_once()
