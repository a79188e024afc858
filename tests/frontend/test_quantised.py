"""Quantised modules as their libraries make them: right through both entries, without externs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import weft
from tests.frontend.entries import Entry, through_weft
from weft.frontend.capture import Name, capture

pytestmark = pytest.mark.filterwarnings("ignore")  # of torchao, about kernels that it lacks
logging.disable(logging.WARNING)
torchao = pytest.importorskip("torchao.quantization")
logging.disable(logging.NOTSET)
CONFIGS: dict[str, Callable[[], Any]] = {
    "int8 weights": lambda: torchao.Int8WeightOnlyConfig(),
    "int8 both": lambda: torchao.Int8DynamicActivationInt8WeightConfig(),
    "int4": lambda: torchao.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=torchao.PerGroup(32)
    ),
    "int4, int8 activations": lambda: torchao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=torchao.PerGroup(32)
    ),
    "float8": lambda: torchao.Float8WeightOnlyConfig(),
}


class Scaled(Tensor):
    """(codes - shift) * scale; the codes may be of this kind too."""

    def __new__(cls, codes: Tensor, scale: Tensor, shift: int = 0) -> Any:
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, codes: Tensor, scale: Tensor, shift: int = 0) -> None:
        self.codes, self.scale, self.shift = codes, scale, shift

    def __tensor_flatten__(self) -> Any:
        return ["codes", "scale"], {"shift": self.shift}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["codes"], inner["scale"], **context)

    def dense(self) -> Tensor:
        return (self.codes.to(self.scale.dtype) - self.shift) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale, args[0].shift)
        args, kwargs = tree_map_only(Scaled, Scaled.dense, (args, kwargs or {}))
        return func(*args, **kwargs)


def codes(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.randint(-100, 100, shape, dtype=dtype)


def layer(weight: Tensor) -> nn.Linear:
    made = nn.Linear(6, 4).requires_grad_(False)
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made


def test_state_that_changes_between_calls(entry: Entry) -> None:
    """What a wrapper is made of, holds beside it and its kind: each call sees what is there now."""
    module: Any = layer(Scaled(codes(4, 6), torch.rand(4, 1)))
    f, x = entry(module), torch.randn(3, 6)

    def change(name: str, value: Any) -> Callable[[], Any]:
        return lambda: setattr(module.weight, name, value)

    def put(weight: Tensor) -> Callable[[], Any]:
        return lambda: setattr(module, "weight", nn.Parameter(weight, requires_grad=False))

    changes = [
        lambda: None,
        lambda: module.weight.scale.mul_(2),
        lambda: module.weight.codes.add_(1),
        change("scale", torch.rand(4, 1)),
        change("shift", 3),
        put(Scaled(codes(4, 6), torch.rand(4, 1))),
        put(Scaled(codes(4, 6), torch.rand(1, 1))),
        put(Scaled(Scaled(codes(4, 6), torch.rand(4, 1), 2), torch.rand(4, 1))),
        put(torch.randn(4, 6)),
    ]
    before = module(x)
    for number, do in enumerate(changes):
        do()
        with torch.no_grad():
            expected = module(x)
            torch.testing.assert_close(f(x), expected, rtol=1e-5, atol=1e-4)
        assert number == 0 or not torch.allclose(before, expected)  # the change is seen at all
        before = expected
    assert entry is not through_weft or f.reasons == []


def test_weights_of_a_wrapper_are_constants() -> None:
    """They are packed ahead of calls, as plain weights are."""
    graph = torch.fx.symbolic_trace(lambda w, x: nn.functional.linear(x, w))
    weight = Scaled(codes(4, 6), torch.rand(4, 1))
    captured = capture(graph, (weight, torch.randn(3, 6)), [Name("w", fixed=True), Name("x")])
    assert [p.node.op.label for p in captured.placeholders] == ["w_codes", "w_scale", "x"]  # type: ignore[attr-defined]
    assert captured.constants() == (0, 1)


def relative(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("name", CONFIGS)
def test_modules_of_torchao(entry: Entry, name: str) -> None:
    module: Any = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 64)).eval()
    torchao.quantize_(module, CONFIGS[name](), lambda m, _: getattr(m, "in_features", 0) == 64)
    f, x = entry(module), torch.randn(5, 64)
    with torch.no_grad():
        ours, eager = f(x), module(x)
        weight: Any = module[0].weight
        exact = module[2].weight.double() @ torch.relu(
            weight.dequantize().double() @ x.double().t() + module[0].bias.double()[:, None]
        )
    exact = exact.t() + module[2].bias.double()
    assert relative(ours, eager.double()) < 1e-6
    if "both" not in name and "activations" not in name:
        assert relative(ours, exact) <= 2 * relative(eager, exact)
    assert entry is not through_weft or f.reasons == []


def test_quantisation_aware_training(entry: Entry) -> None:
    import torchao.quantization.qat as qat

    QATConfig: Any = qat.QATConfig

    config = CONFIGS["int4, int8 activations"]()
    module = nn.Sequential(nn.Linear(32, 16))
    torchao.quantize_(module, QATConfig(config, step="prepare"))
    f, x = entry(module), torch.randn(5, 32)

    def gradients(call: Callable[[Tensor], Tensor]) -> list[Tensor]:
        out = call(x)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), [*module.parameters()])]

    for ours, eager in zip(gradients(f), gradients(module), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
    torchao.quantize_(module, QATConfig(config, step="convert"))
    with torch.no_grad():
        torch.testing.assert_close(f(x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_graphs_of_pt2e(dynamic: bool) -> None:
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    x = torch.randn(3, 8)
    graph = torch.export.export(nn.Linear(8, 5).eval(), (x,)).module()
    config = x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    prepared = quantize_pt2e.prepare_pt2e(graph, x86.X86InductorQuantizer().set_global(config))
    prepared(x)
    converted = quantize_pt2e.convert_pt2e(prepared)
    with torch.no_grad():
        ours = weft.compile(converted, fallback="error")(x)
        torch.testing.assert_close(ours, converted(x), rtol=1e-5, atol=1e-6)
