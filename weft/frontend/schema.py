"""What an ATen op does to its tensors, read from its schema, and the functional form of a write.

effect(aten.slice.Tensor)                  # "view"
functional(aten.add_.Tensor)               # aten.add.Tensor
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload

import weft.frontend.decompositions_mended  # noqa: F401  # pyright: ignore[reportUnusedImport]
from weft.core.errors import CaptureError
from weft.frontend.aten.rows import LOWER
from weft.frontend.encoder_layers import LAYERS
from weft.frontend.quantised_calls import CALLS
from weft.library.collectives import is_ordered

aten = torch.ops.aten


OWN = ("aten", "prims", "weft")  # namespaces whose ops this table knows

# pure       returns fresh tensors
# view       returns views of its first argument
# write      writes one of its arguments and returns it
# reshape    changes the shape of its first argument in place
# composite  is written in terms of other ops
Effect = Literal["pure", "view", "write", "reshape", "composite"]

# ATen's schema says fresh; the result may be the argument itself or share its storage.
_MAYBE_VIEWS = {aten._unsafe_view.default, aten._reshape_alias.default}


def chain_of(op: OpOverload) -> Literal["", "random", "collective"]:
    """What kind of calls has to stay in order with this one; "" where none has."""
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "random"
    return "collective" if is_ordered(str(op)) else ""


@cache
def effect(op: OpOverload) -> Effect:
    schema = op._schema
    if torch.Tag.inplace_view in op.tags:
        return "reshape"
    if str(op) in CALLS:
        return "composite"
    if schema.is_mutable:
        return "write"
    if op in KEPT.values():
        return "pure"
    if is_implicit(op) or is_explicit(op):
        return "composite"
    if op in _MAYBE_VIEWS or any(a.alias_info is not None for a in schema.arguments):
        return "view"
    random = torch.Tag.nondeterministic_seeded in op.tags  # torch draws the same numbers only whole
    whole = str(op) in LOWER or random or op not in decompositions()
    return "pure" if whole else "composite"


@cache
def reads_storage(op: OpOverload) -> bool:
    """Whether it counts from the first element of a storage, but is no view of it."""
    counts = any(a.name == "storage_offset" for a in op._schema.arguments)
    return counts and effect(op) != "view"


def is_implicit(op: OpOverload) -> bool:
    return op._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), torch._C.DispatchKey.CompositeImplicitAutograd
    )


@cache
def is_explicit(op: OpOverload) -> bool:
    """Whether Python says what it does, for all devices, in other ops: not of a custom op, which
    is one call on purpose."""
    name = str(op).removesuffix(".default").replace(".", "/", 1)
    told = f"{name}/CompositeExplicitAutograd" in torch.library._impls
    return told and op.namespace not in OWN and op._schema.name not in OPDEFS


def composition(op: OpOverload) -> Callable[..., Any]:
    """A composite op as a function that calls other ops."""
    if str(op) in CALLS:
        return CALLS[str(op)]
    if is_implicit(op):
        return op.decompose
    if is_explicit(op):
        return partial(op._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd)
    return decompositions()[op]


@cache
def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's own table, but for what has a row, gathered once: that takes 80 ms.

    That of the CPUs' attention gives other than the logarithms that its backward reads.
    """
    torchs = core_aten_decompositions().items()
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    return {op: f for op, f in torchs if str(op) not in LOWER and op is not attention}


# What torch's core table leaves whole.
MORE = """_adaptive_avg_pool2d native_group_norm linalg_vector_norm elu hardtanh leaky_relu isinf
_native_batch_norm_legit _native_batch_norm_legit_functional _log_softmax ldexp dist
rrelu_with_noise_backward batch_norm_backward"""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """What torch itself writes in other ops: losses, batch norm, backward formulas, rarer ops."""
    more = [getattr(aten, name) for name in MORE.split()]
    own = {aten._native_batch_norm_legit_no_training.default: _batch_norm_of_known_statistics}
    torchs = {**core_decompositions(), **get_decompositions(more)}
    own |= {op: partial(_linspace, torchs[op]) for op in overloads(aten.linspace) if op in torchs}
    return {**torchs, **own, **LAYERS}


def _linspace(plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    dtype: torch.dtype | None = kwargs.get("dtype")
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise CaptureError("linspace of integers rounds by vector of eager's kernel")
    return plain(*args, **kwargs)


def overloads(packet: Any) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()]


def _batch_norm_of_known_statistics(*args: Any) -> Any:
    """Torch's own decomposition goes by an op that writes its arguments."""
    *tensors, momentum, eps = args
    return aten._native_batch_norm_legit_functional.default(*tensors, False, momentum, eps)[:3]


# Composites that stay one node, so that the tensor level sees what was meant; the parts of one_hot
# check nothing. Each Python entry point takes the arguments of the op under the same names and in
# the same order.
WHOLE = ("linear", "scaled_dot_product_attention", "layer_norm", "rms_norm", "one_hot")
KEPT: dict[str, OpOverload] = {name: getattr(aten, name).default for name in WHOLE}
HOMES = (torch.nn.functional, WHOLE), (torch, ("layer_norm", "rms_norm"))
KEPT_CALLS = {getattr(home, name): KEPT[name] for home, names in HOMES for name in names}
KEPT_CALLS.update({op: op for op in KEPT.values()})

IDENTITY = {aten.detach.default, aten.alias.default, aten.lift.default}
# Composites that do not depend on the maxima they take.
STEADY = {aten._log_softmax.default, aten.logsumexp.default}

# They write running statistics.
BATCH_NORMS = {
    aten.native_batch_norm.default,
    aten.cudnn_batch_norm.default,
    aten.miopen_batch_norm.default,
    aten._native_batch_norm_legit.default,
}

# The functional form where the name does not give it.
_FUNCTIONAL = {aten._index_put_impl_.default: aten.index_put.default}


@cache
def written_argument(op: OpOverload) -> int:
    """The position of the one tensor that `op` writes."""
    arguments = op._schema.arguments
    written = [i for i, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write]
    if len(written) != 1 or "[]" in str(arguments[written[0]].type):
        raise CaptureError(f"{op} writes several tensors at once")
    return written[0]


@cache
def functional(op: OpOverload) -> OpOverload:
    """The op that returns what `op` writes; the arguments are the same, without any `out`."""
    if op in _FUNCTIONAL:
        return _FUNCTIONAL[op]
    name = op._schema.name.split("::")[1]
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    packet_of = getattr(torch.ops, op.namespace)
    for candidate in (name.removesuffix("_"), name, f"{name.removesuffix('_')}_functional"):
        packet = getattr(packet_of, candidate, None)
        for found in overloads(packet) if packet is not None else ():
            have = [(a.name, str(a.type)) for a in found._schema.arguments]
            if have == wanted and not found._schema.is_mutable:
                return found
    raise CaptureError(f"{op} has no functional form")


def with_defaults(op: OpOverload, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """`args` and all that may follow them by position: what is taken from `named`, or a default.

    The functional form of a write may have no defaults, and no row of the ATen table has them.
    """
    rest = op._schema.arguments[len(args) :]
    return (*args, *(named.pop(a.name, a.default_value) for a in rest if not a.kwarg_only))
