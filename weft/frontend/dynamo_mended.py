"""What Dynamo gets silently wrong, or needlessly slow, mended for every backend by an import.

Each mend is left out by a torch that does the thing otherwise; the tests then say whether it does
it right.
"""

# This file reaches into torch: Dynamo has no public names for how it follows Python.
# pyright: reportPrivateUsage=false

import math
import operator
import re
import sys
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch._dynamo import config, guards, source
from torch._dynamo.guards import GuardBuilder, get_verbose_code_parts
from torch._dynamo.variables import dicts, higher_order_ops
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._functorch._aot_autograd import utils
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.fx.node import map_aggregate

# With one float and a number other than 0, real numbers and Python's give the same.
ONCE = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.neg,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
}  # fmt: skip
PYTHON: dict[Any, Any] = {torch.sym_min: min, torch.sym_max: max}  # min(2.5, 2) is an int
OF = "computed from floats"
MANAGERS: Any = sys.modules["torch._C._dynamo.guards"]
MARKING = "add_dimension_marking_guard"


def _guard_absent_keys() -> None:
    """Guard that d[key] found nothing, as Dynamo does where `key in d` did.

    os.environ.get(name) is such a read: without the guard a variable set later is not seen.
    """
    kind, name = dicts.ConstDictVariable, "getitem_const_raise_exception_if_absent"
    plain = getattr(kind, name, None)
    # The second is its name in torch 2.11.
    hashable = getattr(dicts, "HashableTracker", None) or getattr(kind, "_HashableTracker", None)
    if plain is None or hashable is None:
        return

    def read(self: Any, tx: Any, arg: Any) -> Any:
        if self.source is not None and hashable(arg) not in self.items:
            self.install_dict_contains_guard(tx, [arg])
        return plain(self, tx, arg)

    setattr(kind, name, read)


def _see_new_shapes() -> None:
    """Read a tensor's shape again wherever it may be another by now.

    Dynamo keeps the one it had: x.shape after x.unsqueeze_(0), by whatever name, is the old one.
    """
    for name in ("var_getattr", "call_method", "unpack_var_sequence"):
        plain = getattr(TensorVariable, name, None)
        if plain is not None and hasattr(TensorVariable, "synchronize_attributes"):
            setattr(TensorVariable, name, _synchronized(plain))


def _synchronized(plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)
    def read(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        fake = self.proxy.node.meta.get("example_value")
        if self._size is not None and isinstance(fake, torch.Tensor) and _differs(self, fake):
            self.synchronize_attributes(tx)
        return plain(self, tx, *args, **kwargs)

    return read


def _differs(known: Any, fake: torch.Tensor) -> bool:
    strides = tuple(fake.stride()) if fake.layout is torch.strided else None
    return known._size != tuple(fake.shape) or known.stride not in (None, strides)


def _compute_with_floats() -> None:
    """Guard the floats of an expression whose algebra may round otherwise than Python.

    Dynamo computes with real numbers, by whose rules t + 1e20 - 1e20 is t.
    """
    plain = SymNodeVariable.create

    def create(tx: Any, proxy: Any, sym_num: Any = None, **options: Any) -> Any:
        node = proxy.node
        floats: set[Any] = set().union(*map(_floats_of, node.all_input_nodes))
        if floats and not _is_exact(node, floats):
            for item in floats:
                guard_scalar(item.meta["example_value"])
            node.meta.pop("example_value", None)
            sym_num = _computed(node)
            if not isinstance(sym_num, torch.SymFloat | torch.SymInt | torch.SymBool):
                return ConstantVariable.create(sym_num)
            floats = set()
        node.meta[OF] = floats
        return plain(tx, proxy, sym_num, **options)

    def power(self: torch.SymFloat, other: Any) -> Any:
        return power_of(self, other) if self >= 0 else guard_scalar(self) ** guard_scalar(other)

    power_of = torch.SymFloat.__pow__  # asks for a base that is not negative
    SymNodeVariable.create, torch.SymFloat.__pow__ = staticmethod(create), power


def _floats_of(number: torch.fx.Node) -> Collection[torch.fx.Node]:
    """The reads of floats that Dynamo has freed, which a number is computed from."""
    tensors = [a.meta.get("grapharg") for a in number.all_input_nodes if number.target == "item"]
    freed = any(getattr(t, "pass_arg_as_tensor", False) for t in tensors)
    return {number} if freed else number.meta.get(OF, ())


def _computed(number: Any) -> Any:
    """A number as Python computes it; one of sizes as Dynamo does."""
    if not isinstance(number, torch.fx.Node):
        return number
    if _floats_of(number) == {number}:
        return number.all_input_nodes[0].meta["grapharg"].example.item()
    if not _floats_of(number) and "example_value" in number.meta:
        return _example(number)
    args, named = map_aggregate((number.args, number.kwargs), _computed)
    function: Any = number.target
    if number.op == "call_method":
        return getattr(args[0], function)(*args[1:], **named)
    return PYTHON.get(function, function)(*args, **named)


def _is_exact(node: torch.fx.Node, floats: Collection[torch.fx.Node]) -> bool:
    """Whether it is one operation with a float, and with a number or size that algebra keeps."""
    others = [_example(a) for a in node.args if a not in floats]
    kept = (isinstance(a, torch.SymInt | int) or math.isfinite(a) for a in others)
    once = node.target in ONCE and len(node.args) - len(others) == 1
    if not once or any(isinstance(a, torch.SymFloat) or a == 0 for a in others) or not all(kept):
        return False
    # Python raises an error where it divides by 0: a guard.
    return node.target is not operator.truediv or bool(_example(node.args[1]) != 0)


def _example(number: Any) -> Any:
    return number.meta["example_value"] if isinstance(number, torch.fx.Node) else number


def _guard_signs_of_zeros() -> None:
    """Guard the sign of a float that is 0, and take none as freed: 0.0 and -0.0 are equal.

    One of a module, such as eps, is a number until it is seen to change: with dynamic=True Dynamo
    makes a tensor of each in every call, whatever it is for, which takes 2 us.
    """
    equals, wrap = GuardBuilder.EQUALS_MATCH, VariableBuilder.wrap_symfloat

    @wraps(equals)
    def match(self: Any, guard: Any, **named: Any) -> None:
        equals(self, guard, **named)
        value = self.get(guard)
        if isinstance(value, float) and value == 0.0:
            sign = math.copysign(1, value)
            said = get_verbose_code_parts(f"copysign(1, {guard.name}) == {sign}", guard)
            manager = self.get_guard_manager(guard)
            manager.add_lambda_guard(lambda x: math.copysign(1, x) == sign, said, guard.user_stack)

    def wrapped(self: Any, value: float) -> Any:
        own = source.is_from_unspecialized_nn_module_source(self.source)
        if value != 0:
            with config.patch(assume_static_by_default=True) if own else nullcontext():
                return wrap(self, value)
        self.install_guards(GuardBuilder.CONSTANT_MATCH)
        return ConstantVariable.create(value=value, source=self.source)

    kinds: Any = (GuardBuilder, VariableBuilder)
    kinds[0].EQUALS_MATCH, kinds[1].wrap_symfloat = match, wrapped


def _keep_what_is_stored() -> None:
    """Read an attribute that the graph has stored as what was stored there, from nowhere else.

    Dynamo notes the attribute as where its value comes from: p.grad = None and then a read, and
    where the graph ends p.grad is stored into itself. None, True and False are the same object to
    all that it follows: from then on any None of the process comes from that p.grad.
    """
    plain, create = TensorVariable.var_getattr, ConstantVariable.create

    @wraps(plain)
    def read(self: Any, tx: Any, name: str) -> Any:
        effects = tx.output.side_effects
        if name in ("grad", "_grad") and effects.has_pending_mutation_of_attr(self, "grad"):
            return effects.load_attr(self, "grad")
        return plain(self, tx, name)

    @wraps(create)
    def constant(value: Any, **named: Any) -> Any:
        if value is None or value is True or value is False:
            return ConstantVariable(value, **named)
        return create(value, **named)

    kinds: Any = (TensorVariable, ConstantVariable)
    kinds[0].var_getattr, kinds[1].create = read, staticmethod(constant)


def _time_no_guards() -> None:
    """Leave out that Dynamo flushes the CPU's caches to time the guards of each frame.

    It takes 17 ms, for a figure in the log of guards.
    """
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[reportUnknownLambdaType]


def _import_no_distributed_tensors() -> None:
    """Look for a wrapper of distributed tensors only where Dynamo would take one.

    It asks of every function whether it is that, and imports what defines it: 0.2 s.
    """
    kind: Any = getattr(higher_order_ops, "LocalMapWrappedHigherOrderVariable", None)
    plain = getattr(kind, "should_wrap_in_hop", None)
    if plain is not None and hasattr(kind, "_enabled"):
        kind.should_wrap_in_hop = lambda value: kind._enabled and plain(value)


class _Unmarked:
    """A manager of guards that takes none on marks."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)

    def add_dimension_marking_guard(self, *_: Any) -> None:
        return None


OF_OBJECT = re.compile(r"[])\w]\.\w")  # L['self'].weight, but not L['x']


def unmarked_of_object(builder: Any, guard: Any) -> bool:
    """Whether a guard is on a tensor without marks that some object has."""
    found = getattr(builder.get(guard), "__dict__", ())
    return not any(n.endswith("_indices") for n in found) and bool(OF_OBJECT.search(guard.name))


def _watch_no_marks_of_state() -> None:
    """Leave out guards that tensors of objects are not marked later, by mark_dynamic and the like.

    For each parameter, gradient and state of an optimiser they take as long as half of what is
    checked of it. A mark decides no result: the guard on the shape stays, and what is compiled
    after a mark sees it. Arguments, and tensors that have marks, keep theirs.
    """
    plain = getattr(GuardBuilder, "TENSOR_MATCH", None)
    if plain is None or not hasattr(MANAGERS.GuardManager, MARKING):
        return

    @wraps(plain)
    def match(self: Any, guard: Any, value: Any = None) -> None:
        if not unmarked_of_object(self, guard):
            return plain(self, guard, value)
        find = self.get_guard_manager
        self.get_guard_manager = lambda guard: _Unmarked(find(guard))  # type: ignore[reportUnknownLambdaType]
        try:
            plain(self, guard, value)
        finally:
            del self.get_guard_manager

    GuardBuilder.TENSOR_MATCH = match


def _guard_both_places() -> None:
    """Guard that what was one object in two places is, whatever those are.

    Dynamo doesn't where one place is in an optimiser: a parameter replaced in its model is not
    seen. Nor where one is in a global and the other in an argument or a closure.
    """
    here: Any = guards
    builder: Any = sys.modules[VariableBuilder.__module__]
    plain, duplicate = (
        getattr(*where, None)
        for where in ((builder, "make_dupe_guard"), (GuardBuilder, "DUPLICATE_INPUT"))
    )
    if plain is None or duplicate is None:
        return

    @wraps(plain)
    def both(one: Any, other: Any) -> Any:
        made = plain(one, other)  # an error for objects of scripts
        guard = here.GuardBuilder.DUPLICATE_INPUT
        return partial(guard, source_b=other) if other and one != other else made

    builder.make_dupe_guard = both
    if hasattr(here, "is_from_optimizer_source"):  # which is asked for this guard only
        here.is_from_optimizer_source = lambda _: False  # type: ignore[reportUnknownLambdaType]


def _ask_for_hooks_at_once() -> None:
    """Guard that there are no hooks of saved tensors, or none that a graph can have, by one call.

    Dynamo compares ids of hooks in Python before each call, which takes 0.3 us.
    """
    name = "AUTOGRAD_SAVED_TENSORS_HOOKS"
    plain = getattr(GuardBuilder, name, None)
    top = getattr(sys.modules["torch._C._autograd"], "_top_saved_tensors_default_hooks", None)
    inlineable = getattr(utils, "saved_tensors_hooks_are_inlineable", None)
    if plain is None or top is None or inlineable is None:
        return

    @wraps(plain)
    def match(self: Any, guard: Any) -> None:
        if inlineable(top(True)):
            plain(self, guard)
            return

        def none(_: Any) -> bool:
            hooks = top(True)
            return hooks is None or not inlineable(hooks)

        said = get_verbose_code_parts("no hooks of saved tensors in graphs", guard)
        self.guard_manager.root.add_lambda_guard(none, said, guard.user_stack)

    setattr(GuardBuilder, name, match)


_guard_absent_keys()
_ask_for_hooks_at_once()
_guard_both_places()
_see_new_shapes()
_keep_what_is_stored()
_guard_signs_of_zeros()
_time_no_guards()
_compute_with_floats()
_watch_no_marks_of_state()
_import_no_distributed_tensors()
