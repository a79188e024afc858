"""Training steps as one graph: Dynamo follows an optimiser's methods, and backward, in place.

with whole_steps() as whole:
    ...                               # Dynamo converts a frame; whole.followed tells of such calls

By itself Dynamo ends a graph at loss.backward(), where an optimiser's step begins and ends, and at
zero_grad(). Here it follows the function that torch's decorators stand around, under the mode of
gradients that they set, and the initialisation of state, which it otherwise runs while it compiles:
gradients made in the same graph are not there then. Hooks end the graph as before.

The first step of an optimiser runs in eager, as a whole call (`later`): it makes the state, once,
which would be a program of its own. A frame that Dynamo fails on like this is converted as by
itself.
"""

# This file reaches into torch: Dynamo has no public names for how it follows Python.
# pyright: reportPrivateUsage=false

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, NoReturn
from weakref import WeakSet, ref

import torch
from torch._dynamo import config
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.exc import unimplemented
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource, GetItemSource, WeakRefCallSource
from torch._dynamo.variables import builder
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.ctx_manager import GradModeVariable
from torch._dynamo.variables.functions import SkipFunctionVariable, UserFunctionVariable
from torch._dynamo.variables.misc import GetAttrVariable
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable
from torch.optim import optimizer  # pyright: ignore[reportAttributeAccessIssue]

from weft.frontend.specialise import PREPARING

FOLLOWED = ("step", "zero_grad", "_init_group")
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
DECORATORS = (optimizer.__file__, torch._compile.__file__)  # pyright: ignore
OWN_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


class Later(Exception):
    """A step is not followed in this call."""


@dataclass
class Whole:
    followed: bool = False  # whether a step or a backward is in the frame
    later: str | None = None  # the optimiser whose step is to be followed in the next call


_begun: WeakSet[torch.optim.Optimizer] = WeakSet()
_whole: ContextVar[Whole | None] = ContextVar("whole", default=None)


@contextmanager
def whole_steps() -> Generator[Whole]:
    """While it lasts, Dynamo follows steps and backward as part of a graph."""
    whole = Whole()
    token = _whole.set(whole)
    try:
        with config.patch(trace_autograd_ops=True):
            yield whole
    finally:
        _whole.reset(token)


def _undecorated(method: Any) -> Any:
    """The function of an optimiser's class that torch's own decorators stand around."""
    function: Any = innermost_fn(method)
    while hasattr(function, "__wrapped__") and _only_decorates(function):
        function = innermost_fn(function.__wrapped__)
    return function


def _only_decorates(function: Any) -> bool:
    """Whether a function is torch's profiling, its mode of gradients, or keeps Dynamo out."""
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    no_grad = any(isinstance(getattr(c, "__self__", None), torch.no_grad) for c in inside)
    return no_grad or function.__code__.co_filename in DECORATORS


def _is_followed(opt: torch.optim.Optimizer, name: str) -> bool:
    hooks = [getattr(opt, h) for h in OWN_HOOKS] + [getattr(optimizer, h) for h in GLOBAL_HOOKS]
    own = getattr(vars(opt).get("step"), "_wrapped_by_lr_sched", "step" not in vars(opt))
    return _whole.get() is not None and name in FOLLOWED and own and not any(hooks)


def _var_getattr(self: OptimizerVariable, tx: Any, name: str) -> VariableTracker:
    if self.source is None or not _is_followed(self.value, name):
        return _plain_getattr(self, tx, name)
    return GetAttrVariable(self, name, py_type=type(getattr(self.value, name)))


def _call_method(self: OptimizerVariable, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    if self.source is None or not _is_followed(self.value, name):
        return _plain_call(self, tx, name, args, kwargs)
    _follow()
    function = UserFunctionVariable(_undecorated(getattr(type(self.value), name)))
    if name != "step":
        return function.call_function(tx, [self, *args], kwargs)
    if begins(self.value):
        text: Any = self.source.name
        _follow().later = text if isinstance(text, str) else text()
        raise Later
    _guard_hooks(self, tx)
    mode = GradModeVariable.create(
        tx, bool(self.value.defaults.get("differentiable")), initialized=True
    )
    mode.enter(tx)
    result = function.call_function(tx, [self, *args], kwargs)
    mode.exit(tx)
    return result


def _call_object(self: UserDefinedObjectVariable, tx: Any, args: Any, kwargs: Any) -> Any:
    """A bound method, `step = opt.step`, is called as the method of that name is."""
    bound: Any = self.value
    opt = getattr(bound, "__self__", None) if type(bound) is MethodType else None
    followed = isinstance(opt, torch.optim.Optimizer) and _whole.get() is not None
    if self.source is None or not followed:
        return _plain_object(self, tx, args, kwargs)
    if bound.__func__ is not getattr(type(opt), bound.__name__, None):
        return _plain_object(self, tx, args, kwargs)
    install_guard(AttrSource(self.source, "__func__").make_guard(GuardBuilder.CLOSURE_MATCH))
    owner = VariableTracker.build(tx, opt, AttrSource(self.source, "__self__"))
    return owner.call_method(tx, bound.__name__, args, kwargs)


def _call_skipped(self: SkipFunctionVariable, tx: Any, args: Any, kwargs: Any) -> Any:
    """What a scheduler puts in a step's place calls the step of the optimiser it refers to."""
    wrapped = hasattr(self.value, "_wrapped_by_lr_sched") and _whole.get() is not None
    cells: Any = self.value.__closure__ if wrapped else ()
    at = next((i for i, cell in enumerate(cells) if isinstance(cell.cell_contents, ref)), None)
    if self.source is None or at is None:
        return _plain_skipped(self, tx, args, kwargs)
    install_guard(self.source.make_guard(GuardBuilder.CLOSURE_MATCH))
    cell = GetItemSource(AttrSource(self.source, "__closure__"), at)
    source = WeakRefCallSource(AttrSource(cell, "cell_contents"))
    owner = VariableTracker.build(tx, cells[at].cell_contents(), source)
    return owner.call_method(tx, "step", args, kwargs)


def begins(opt: torch.optim.Optimizer) -> bool:
    """Whether a step is the optimiser's first, which runs in eager: so once for each."""
    if opt.state or opt in _begun or PREPARING.get():
        return False
    _begun.add(opt)
    return True


def _guard_hooks(opt: OptimizerVariable, tx: Any) -> None:
    """Guard that no hooks are added, and that the step is not replaced."""
    module = tx.import_source(optimizer.__name__)
    sources = [AttrSource(opt.source, name) for name in OWN_HOOKS]  # type: ignore[arg-type]
    for source in (*sources, *(AttrSource(module, name) for name in GLOBAL_HOOKS)):
        install_guard(source.make_guard(GuardBuilder.EMPTY_NN_MODULE_HOOKS_DICT))
    if "step" not in vars(opt.value):
        absent = partial(GuardBuilder.NOT_PRESENT_IN_GENERIC_DICT, attr="step")
        install_guard(opt.source.make_guard(absent))  # type: ignore[union-attr]


def _backward(self: TensorVariable, tx: Any, *args: Any, **kwargs: Any) -> Any:
    """As Dynamo has it, where it knows every leaf, and no leaf has hooks: it leaves both out."""
    if _whole.get() is None:
        return _plain_backward(self, tx, *args, **kwargs)
    _follow()
    given = (*tx.output.leaf_var_creation_order, *tx.output.input_source_to_var.values())
    known = {id(_fake(var)): var for var in given if isinstance(var, TensorVariable)}
    for leaf in _leaves(_fake(self).grad_fn):
        var = known.get(id(leaf))
        if var is None:
            _end_graph("backward reaches a leaf that is no input of the graph")
        for name in HOOKS if var.source is not None else ():
            assert var.source is not None
            source = AttrSource(var.source, name)
            if tx.output.resolve_source_value(source) is not None:
                _end_graph("backward reaches a tensor with hooks")
            install_guard(source.make_guard(GuardBuilder.CONSTANT_MATCH))
    result = _plain_backward(self, tx, *args, **kwargs)
    again = *args[1:3], kwargs.get("retain_graph"), kwargs.get("create_graph")
    kept = any(v is not None and v.as_python_constant() for v in again)
    if not kept and not _fake(self)._is_view():
        self.call_method(tx, "detach_", [], {})  # it has no history any more
    return result


def _follow() -> Whole:
    whole = _whole.get()
    assert whole is not None
    whole.followed = True
    return whole


def _fake(var: TensorVariable) -> torch.Tensor:
    return var.as_proxy().node.meta["example_value"]


def _end_graph(reason: str) -> NoReturn:
    unimplemented(gb_type=reason, context="", explanation="It runs in eager.", hints=[])


def _leaves(start: Any) -> Iterator[torch.Tensor]:
    """The tensors whose gradients a node of torch's graph ends at."""
    seen, waiting = set[Any](), [start]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [before for before, _ in node.next_functions]


def _static(tensor: Any) -> str | None:
    """Parameters are inputs of a whole step, also where an optimiser has marked their addresses:
    backward looks for leaves among inputs alone."""
    found = _plain_static(tensor)
    return "unguarded" if found == "guarded" and _whole.get() is not None else found


_plain_getattr, _plain_call = OptimizerVariable.var_getattr, OptimizerVariable.call_method
_plain_object = UserDefinedObjectVariable.call_function
_plain_skipped = SkipFunctionVariable.call_function
_plain_backward, _plain_static = TensorVariable.method_backward, builder.get_static_address_type
OptimizerVariable.var_getattr = _var_getattr
OptimizerVariable.call_method = _call_method
UserDefinedObjectVariable.call_function = _call_object
SkipFunctionVariable.call_function = _call_skipped
TensorVariable.method_backward = _backward
builder.get_static_address_type = _static
