"""A captured program, its call, and what its trace takes for granted of inputs and torch's modes.

captured = capture(fx_graph, (x, weight))
captured.graph, captured.placeholders, captured.layouts, captured.mutations, captured.leaves
call = entry(captured, runner, 2, otherwise)
y, view = call(x, weight)             # what the FX graph returns

assumed = Assumptions.of((x, weight))     # hashable: the key that a specialisation is found by
check = assumed.check((x, weight))        # check(x, weight) -> bool in C++, about 0.2 us
Python state (attributes, globals, closures, hooks) is not here: Dynamo captures and guards that.
"""

# This file reaches into torch: its guards and dispatcher have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import TreeSpec, tree_unflatten

from weft.core.errors import ExternMismatch
from weft.core.node import Graph, Node
from weft.core.types import TensorType
from weft.frontend.extents import Source
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes

Values = Sequence[Any]  # that a graph is called with, or that stand in place of them
# What a back end makes of a captured program. It takes one tensor per placeholder, in order, and
# then the numbers that the graph's sizes are, by label. It writes every mutation into its
# placeholder's tensor and returns one fresh tensor per result with exactly the shape, strides and
# dtype of its layout.
Runner = Callable[[Values], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Geometry:
    """An as_strided view of a tensor; `offset` counts from that tensor's first element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.offset)


@dataclass(frozen=True, eq=False)
class Placeholder:
    """A tensor that comes from outside.

    `position` is its place among the graph's inputs; None for `tensor`, a literal of the program.
    `fixed` marks a parameter or buffer. `region` asks for that as_strided part of the tensor:
    inputs that share a storage which the program writes arrive as one 1-D placeholder that covers
    them all.
    """

    node: Node
    position: int | None = None
    fixed: bool = False
    tensor: torch.Tensor | None = None
    region: Geometry | None = None


@dataclass(frozen=True)
class Leaf:
    """One leaf of the output pytree.

    result       the graph's output number `index`, or the view `geometry` of it
    placeholder  the tensor of placeholders[index] itself, or the view `geometry` of it
    input        the FX graph's input number `index`, an object that is no tensor
    constant     the object `constant`
    size         the number that the size `constant` is
    """

    kind: Literal["result", "placeholder", "input", "constant", "size"]
    index: int = 0
    geometry: Geometry | None = None
    constant: Any = None


class Known(NamedTuple):
    """What lowering may use beside a graph: layouts of its outputs, the inputs that are constants,
    whether the program may be one for a part of the sizes, and which sizes are few there: None
    where it is one for all after all; whether it shall only be fused; whether floats are to be
    summed in the program's own order; whether it runs without ATen, so that no op may stay.
    """

    layouts: tuple[TensorType, ...] | None = None
    constants: Collection[int] = ()
    narrows: bool = False
    few: Collection[str] | None = ()
    fused: bool = False
    ordered: bool = False
    alone: bool = False


KNOWN = Known()


@dataclass
class Captured:
    """An FX graph, traced for one set of assumptions about its inputs.

    The graph's outputs are fresh tensors of these layouts, but for the last ones: `mutations` has
    the numbers of the placeholders that hold them afterwards. One that no leaf names is of the last
    draw of random numbers, or collective, which nothing reads.
    """

    graph: Graph
    placeholders: list[Placeholder]
    layouts: tuple[TensorType, ...]
    mutations: list[int]
    leaves: list[Leaf]
    out_tree: TreeSpec
    place: torch.device  # where its tensors are, whatever the target
    numbers: dict[int, Any]  # by position, inputs of one element whose value the trace has read
    sizes: dict[Node, Source] = field(default_factory=dict[Node, Source])  # by symbol, in order
    called: dict[str, Node] = field(default_factory=dict[str, Node])  # the same, by torch's names
    narrows: bool = False  # whether it may have programs of its own for parts of the sizes
    seconds: float = 0.0

    def constants(self) -> tuple[int, ...]:
        """Placeholders that seldom change, and can tell: parameters and the like, not written."""
        fixed = [(i, p) for i, p in enumerate(self.placeholders) if p.fixed or p.position is None]
        return tuple(i for i, p in fixed if p.region is None and i not in self.mutations)


# --- the call -------------------------------------------------------------------------------------


def entry(
    captured: Captured, run: Runner, arity: int, otherwise: Callable[[Exception], Any]
) -> Callable[..., Any]:
    """A function of the FX graph's `arity` inputs that returns what the graph does.

    `otherwise` gives what runs in its place where a library call turns out to give something
    else than its own rules say. Of a program that writes to inputs, `writing` is None or makes a
    faster one: writing(apart, other) calls other(*inputs) where apart(*inputs) is False, which it
    asks where some lie elsewhere than before.
    """
    placeholders, leaves, tree = captured.placeholders, captured.leaves, captured.out_tree
    count, sizes = len(placeholders), [captured.sizes[n] for n in sizes_of(captured.graph).values()]
    inputs = [p.position for p in placeholders if p.region is None]
    straight = count == arity and not sizes and inputs == [*range(arity)]
    plain = tree.type is tuple and leaves == [Leaf("result", i) for i in range(len(leaves))]
    plain = plain and len(leaves) == len(captured.layouts) - len(captured.mutations)
    wrap = _wrap(captured)
    own = run if plain and straight else None
    direct = getattr(own, "direct", None)
    pick = None if straight else _picker(placeholders, sizes)

    def call(*inputs: Any) -> Any:
        given = inputs if pick is None else pick(inputs)
        try:
            results = run(given)
        except ExternMismatch as error:
            return otherwise(error)(*inputs)
        return results if plain else wrap(results, given, inputs)

    call.writing = getattr(own, "writing", None)  # type: ignore[attr-defined]
    return direct or call


def _picker(placeholders: Sequence[Placeholder], sizes: Sequence[Source]) -> Callable[[Any], Any]:
    """The placeholders' tensors and then the sizes, as a tuple, from the inputs."""
    own = tuple(p.tensor for p in placeholders if p.position is None)
    number = iter(range(-len(own), 0))  # literals are picked from behind the inputs
    whole = [next(number) if p.position is None else p.position for p in placeholders]
    places = [*whole, *(s.position for s in sizes if s.dimension is None)]
    regions = any(p.region is not None for p in placeholders)
    if not regions and len(places) == len(placeholders) + len(sizes) > 1:
        pick = itemgetter(*places)
        return (lambda inputs: pick((*inputs, *own))) if own else pick
    read = [*map(_reader, placeholders), *(s.of for s in sizes)]
    return lambda inputs: tuple([r(inputs) for r in read])


def _reader(p: Placeholder) -> Callable[[Values], torch.Tensor]:
    """A placeholder's tensor, from the inputs."""
    if p.position is None:
        return lambda inputs: p.tensor  # type: ignore[return-value]
    if p.region is None:
        return itemgetter(p.position)
    return lambda inputs: p.region.of(inputs[p.position])  # type: ignore[union-attr]


Write = Callable[[Values, Values, Values], Any]  # of results, placeholders' tensors and inputs
SOURCES = ("result", "placeholder", "input")  # the kinds of leaf that these three are for


def _wrap(captured: Captured) -> Write:
    """Outputs, from the results, the placeholders' tensors and the inputs."""
    write = [_writer(leaf, captured.sizes) for leaf in captured.leaves]
    tree = captured.out_tree
    if tree.is_leaf():
        return write[0]
    flat = tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children())
    make = tree.type if flat else partial(tree_unflatten, treespec=tree)
    return lambda *sources: make([w(*sources) for w in write])


def _writer(leaf: Leaf, sizes: Mapping[Node, Source]) -> Write:
    """One leaf of the output."""
    index, geometry = leaf.index, leaf.geometry
    if sizes and sizes_of(leaf):
        return lambda results, tensors, inputs: _writer(
            with_sizes(leaf, {n: constant(s.of(inputs)) for n, s in sizes.items()}), {}
        )(results, tensors, inputs)
    if leaf.kind in ("constant", "size"):
        return lambda *_: leaf.constant
    source = SOURCES.index(leaf.kind)
    if geometry is None:
        return lambda *sources: sources[source][index]
    return lambda *sources: geometry.of(sources[source][index])


# --- what a trace takes for granted ---------------------------------------------------------------

# Of these, equal values of one type are the same value; of floats, -0.0 and 0.0 are not.
EXACT = (type(None), bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
CONSTANTS = (*EXACT, float, complex)  # values that an FX graph holds as they are
# To a graph these are all tensors without behaviour of their own.
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)

Check = Callable[..., bool]


@dataclass(frozen=True)
class Assumptions:
    """One fact per input, how inputs overlap in memory, and torch's modes.

    inputs   of a tensor: type, shape, strides, dtype, device, layout, requires_grad, conj, neg
             of another value: its type and the value itself
    sharing  per tensor, the first one in the same storage and the distance to it; empty where
             all storages differ
    modes    gradients on or off, default dtype, what autocast casts to, deterministic or not
    """

    inputs: tuple[Any, ...]
    sharing: tuple[tuple[Any, ...], ...]
    modes: tuple[Any, ...]

    @staticmethod
    def of(inputs: Sequence[Any]) -> Assumptions:
        """The record that holds for these inputs now."""
        return Assumptions(tuple(map(fact, inputs)), sharing(inputs), modes())

    def apart(self, inputs: Sequence[Any]) -> Check | None:
        """What of the check looks at overlap alone; None where the record's tensors share."""
        places, plain = self._tensors(inputs)
        if not plain:
            return None
        sizes = [n for i in places for part in self.inputs[i][1:3] for n in part]
        return _apart(places, len(inputs), ANY not in sizes)

    def check(self, inputs: Sequence[Any], alone: bool = False) -> Check:
        """A fast function that is true only for inputs that the record holds for.

        `inputs` satisfy the record. Overlap is looked at only where it matters: `alone` says that
        the program writes to inputs. How sizes that the record leaves open depend on each other is
        Dynamo's guard.
        """
        places, plain = self._tensors(inputs)
        tensors = [inputs[i] for i in places]
        apart = self.apart(inputs) if alone and len(tensors) > 1 else None
        if apart is not None:
            check = self.check(inputs)
            return lambda *given: check(*given) and apart(*given)
        others = [i for i in range(len(inputs)) if i not in places]
        if not plain or any(type(inputs[i]) not in EXACT for i in others):
            return lambda *given: self.fit(given) and fits(self.sharing, sharing(given))
        same_modes, count = GlobalStateGuard().check, len(tensors)
        rest = [(i, type(inputs[i]), self.inputs[i][1]) for i in others]
        if not tensors:
            return lambda *given: same_modes() and equal(given, rest, 0)
        sizes, strides = ([known(self.inputs[i][n]) for i in places] for n in (1, 2))
        make: Any = TensorGuards  # its stub has the wrong types
        fit = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if not rest:
            return lambda *given: len(given) == count and same_modes() and fit(*given)
        return lambda *given: (
            equal(given, rest, count) and same_modes() and fit(*[given[i] for i in places])
        )

    def _tensors(self, inputs: Sequence[Any]) -> tuple[list[int], bool]:
        """Where the tensors are, and whether they are plain ones, none of them twice."""
        places = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        tensors = [inputs[i] for i in places]
        plain = len(set(map(id, tensors))) == len(tensors) and not self.sharing
        real = all(t.layout is torch.strided and not isinstance(t, FakeTensor) for t in tensors)
        return places, plain and real

    def fit(self, inputs: Sequence[Any]) -> bool:
        """Whether this record holds for inputs, whatever their sizes where it has none."""
        found = Assumptions.of(inputs)
        return fits((self.inputs, self.modes), (found.inputs, found.modes))


def _apart(places: Sequence[int], count: int, sized: bool) -> Check:
    """Whether no two of the tensors, at these places among `count` inputs, share a storage.

    Tensors of known sizes that lie where others lay apart do not overlap either: addresses, which
    take a tenth of the time to find, are compared first.
    """
    known: list[int] | None = None
    every = len(places) == count

    def apart(*given: Any) -> bool:
        nonlocal known
        if not sized:
            return not sharing(given)
        lie = [*map(torch.Tensor.data_ptr, given if every else [given[i] for i in places])]
        if lie != known and not sharing(given):
            known = lie
        return lie == known

    return apart


class _Any:
    """Stands in a record for a size that is no number: one object, in a pickle as well."""

    def __reduce__(self) -> str:
        return "ANY"


ANY = _Any()


def known(sizes: Sequence[Any]) -> list[int | None]:
    """The sizes as torch's guards take them: None for any."""
    return [None if n is ANY else n for n in sizes]


def fits(told: Any, found: Any) -> bool:
    """Whether what was found is what a record tells, or a size where it tells of any."""
    if isinstance(told, tuple) and isinstance(found, tuple):
        return len(told) == len(found) and all(map(fits, told, found))
    return told is ANY or told == found


def equal(given: Sequence[Any], rest: Sequence[tuple[int, type, Any]], tensors: int) -> bool:
    """Whether those of `rest` are of the same type and value, and so many tensors stand beside."""
    if len(given) != len(rest) + tensors:
        return False
    pairs = ((given[i], kind, value) for i, kind, value in rest)
    return all(type(x) is kind and (value is ANY or x == value) for x, kind, value in pairs)


def fact(value: Any) -> Any:
    """What is assumed of one input."""
    if isinstance(value, torch.SymInt):
        return int, ANY
    if not isinstance(value, torch.Tensor):
        # repr tells -0.0 from 0.0, and lets nan equal nan
        exact = repr(value) if isinstance(value, (float, complex)) else value
        return (type(value), exact) if isinstance(value, CONSTANTS) else type(value)
    kind = torch.Tensor if type(value) in PLAIN else type(value)
    strides = sized(value.stride()) if value.layout is torch.strided else value.layout
    wants = torch.is_grad_enabled() and value.requires_grad
    lazy = value.is_conj(), value.is_neg()
    return kind, sized(value.shape), strides, value.dtype, value.device, wants, *lazy


def sized(sizes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(ANY if isinstance(n, torch.SymInt) else n for n in sizes)


def sharing(inputs: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Which tensors lie in one storage, and where; empty in the plain case."""
    tensors = [t for t in inputs if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    storages = [t.untyped_storage()._cdata for t in tensors]
    if len(set(storages)) == len(storages):
        return ()
    first: dict[int, int] = {}
    owners = [first.setdefault(storage, i) for i, storage in enumerate(storages)]
    offsets = [t.storage_offset() for t in tensors]
    return tuple((i, *sized([at - offsets[i]])) for i, at in zip(owners, offsets, strict=True))


def modes() -> tuple[Any, ...]:
    """Gradients, default dtype, what each kind of device casts to (None: it does not), and whether
    algorithms have to be deterministic."""
    kinds = ("cpu", "cuda")
    casts = (torch.get_autocast_dtype(k) if torch.is_autocast_enabled(k) else None for k in kinds)
    ordered = torch.are_deterministic_algorithms_enabled()
    return (torch.is_grad_enabled(), torch.get_default_dtype(), *casts, ordered)
