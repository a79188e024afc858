"""Keeps linear, attention and the norms whole, which torch takes apart before a dispatch mode sees.

with tracing(tracer):
    fn(*fake_inputs)            # F.linear(x, w) is one node aten.linear.default
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_wrapper

from weft.frontend.decompositions_mended import IN_PYTHON
from weft.frontend.products import FUNCTIONS, Products, product
from weft.frontend.recurrent import in_parts, recurrent
from weft.frontend.schema import KEPT_CALLS, with_defaults
from weft.frontend.tracer import Tracer
from weft.frontend.whole import whole_ops

OWN = {**IN_PYTHON, **dict.fromkeys(FUNCTIONS, product)}


def _unasked(function: FunctionType) -> FunctionType:
    """The function, which does not ask whether a mode takes it over."""
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


# Functions in Python that Dynamo leaves as one call: what they call is to be seen too.
LOOKED_INTO = {F.multi_head_attention_forward: _unasked(F.multi_head_attention_forward)}  # type: ignore[arg-type]


def in_transform() -> bool:
    """Whether a transform of torch.func is on: vmap, grad and the like."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore


class Composites(TorchFunctionMode):
    """Records the calls of KEPT_CALLS as one node, before torch takes them apart."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in LOOKED_INTO:
            with self:
                return LOOKED_INTO[func](*args, **kwargs)
        op = KEPT_CALLS.get(func)
        if op is None or self._transformed((*args, *kwargs.values())):
            return (in_parts(func, args) or OWN.get(func, func))(*args, **kwargs)
        arguments = op._schema.arguments
        given = dict(zip((a.name for a in arguments), args, strict=False), **kwargs)
        if not given.keys() <= {a.name for a in arguments}:
            return func(*args, **kwargs)
        positional = [*with_defaults(op, (), given)]  # which leaves those that only have names
        while positional and positional[-1] == arguments[len(positional) - 1].default_value:
            positional.pop()
        return self.tracer.record(op, tuple(positional), given)

    def _transformed(self, args: Any) -> bool:
        """Under autocast, vmap or an inner autograd the call means more than the op, and of a
        tensor that is made of others what that says."""
        if any(map(is_wrapper, args)):
            return True
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        devices = {t.device.type for t in tensors} - {"meta"}  # meta has no autocast
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return wanted or in_transform() or any(map(torch.is_autocast_enabled, devices))


@contextmanager
def switched(read: Callable[[], Any], switch: Callable[[Any], Any], wanted: Any) -> Generator[None]:
    """One of torch's settings as wanted, and then again as it was."""
    before = read()
    switch(wanted)
    try:
        yield
    finally:
        switch(before)


@contextmanager
def in_training(inputs: Sequence[Any], native: bool) -> Generator[None]:
    """Attention and recurrent layers as ATen computes them, and their gradients, on CPUs.

    Elsewhere, and where all is to be `native`, in the form whose backward is made of core ATen ops:
    what attention keeps for it then grows with the square of the length.
    """
    devices = {t.device.type for t in inputs if isinstance(t, torch.Tensor)}
    if native or devices - {"cpu"}:
        mkldnn = switched(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False)
        with mkldnn, recurrent(True), whole_ops(), sdpa_kernel(SDPBackend.MATH), Products():
            yield
    else:
        kernels = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
        with recurrent(True), whole_ops(), kernels, Products():
            yield


@contextmanager
def tracing(tracer: Tracer) -> Generator[None]:
    # torch's fused encoder layer is one opaque op; the plain path says the same in many.
    mha = torch.backends.mha
    plain = switched(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False)
    fakes = tracer.fake_mode, tracer.dispatcher()
    with plain, whole_ops(), recurrent(False), fakes[0], fakes[1], tracer, Composites(tracer):
        yield
