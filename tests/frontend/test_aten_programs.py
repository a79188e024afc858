"""What torch's operator database leaves out: programs whose ATen calls test_aten.py records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._prims  # its operators  # pyright: ignore[reportUnusedImport]
from torch import nn
from torch.nn import functional as F

from weft.scalar.special import SPECIAL

aten = torch.ops.aten

# Families without a row, and samples that take long.
SKIPPED = (
    *("linalg.", "fft", "sparse", "svd", "masked.", "stft", "lowrank"),
    *("ormqr", "lu_", "geqrf", "pinverse", "eig"),
    *("bicubic", "jiterator", "unique"),
    *("block_diag", "ctc", "ldl", "cholesky", "tensorsolve", "multi_margin", "logdet"),
)

# Ops that torch's own decompositions bring down to rows.
DECOMPOSED = """
    sigmoid_backward tanh_backward silu_backward gelu_backward mish_backward threshold_backward
    hardtanh_backward hardswish_backward hardsigmoid_backward leaky_relu_backward elu_backward
    _prelu_kernel_backward softplus_backward logit_backward log_sigmoid_backward glu_backward
    rsub.Tensor rsub.Scalar floor_divide sgn frac addcmul addcdiv lerp.Scalar lerp.Tensor
    clamp_min clamp_max heaviside deg2rad rad2deg sinc xlogy.Tensor special_xlog1py logaddexp
    logaddexp2 mish hardswish hardsigmoid _prelu_kernel celu softplus softshrink hardshrink
    threshold logit log_sigmoid_forward glu nan_to_num isposinf isneginf nansum std.correction
    std_mean.correction norm.Scalar logsumexp aminmax count_nonzero take dot mv addr diag_embed
    roll rot90 tril triu pixel_shuffle
    reflection_pad2d replication_pad2d pixel_unshuffle stack slice_backward select_backward
    diagonal_backward linspace _softmax_backward_data native_layer_norm_backward
    _log_softmax_backward_data native_group_norm_backward native_batch_norm_backward mse_loss
    mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
    native_group_norm _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    nll_loss_forward nll_loss2d_forward _fused_rms_norm
""".split()

# (op, result) whose eager values are not to be compared with.
INEXACT = {
    ("aten.nll_loss_forward.default", 1),  # unset without a reduction
    ("aten.nll_loss2d_forward.default", 1),
    # Statistics of a bf16 batch are f32, but bf16 by torch's shape function.
    ("aten._native_batch_norm_legit_functional.default", 1),
    ("aten._native_batch_norm_legit_functional.default", 2),
    # of equal elements eager takes any
    *((f"aten.{n}.default", 1) for n in ("sort", "topk", "kthvalue", "mode")),
    *((f"aten.{n}.dim", 1) for n in ("median", "nanmedian")),
    ("aten.as_strided.default", 0),  # samples are views with an offset of their own
    *(("aten._embedding_bag.default", i) for i in (1, 2, 3)),  # unset where nothing reads them
    *(("aten._embedding_bag_forward_only.default", i) for i in (1, 2, 3)),
}

# Rows that ask what computes an operand, which a call alone does not show: test_random_nets.py.
# Rows that only whole programs reach.
OF_PROGRAMS = {
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    "aten._embedding_bag_backward.default",
    "aten._embedding_bag_dense_backward.default",
    "aten._embedding_bag_per_sample_weights_backward.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "aten.one_hot.default",
    "aten._efficientzerotensor.default",  # of gradients: tests/conformance has sgn
}


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def odd() -> torch.Tensor:
    return torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.5, 1e30, 1e-40])


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape)


def batch_norms(dtype: torch.dtype) -> Any:
    a, p, q = torch.randn(3, 4, 5, dtype=dtype), torch.rand(4), torch.rand(4)
    return (
        aten._native_batch_norm_legit_functional(a, p, q, q, p, True, 0.1, 1e-5),
        aten._native_batch_norm_legit_functional(a, p, q, q, p, False, 0.1, 1e-5),
        aten._native_batch_norm_legit_no_training(a, p, q, q, p, 0.1, 1e-5),
    )


def on_specials(function: Callable[[torch.Tensor], Any]) -> Callable[[], Any]:
    return lambda: function(odd())


# Not gelu: in f32 eager gives nan at infinity, in f64 infinity.
SPECIALS = (
    *(F.relu, F.silu, torch.sigmoid, torch.tanh, F.softplus, F.hardtanh, F.elu, F.mish),
    *(F.hardswish, F.logsigmoid, torch.sign, torch.sgn, torch.isnan, torch.isinf, torch.isposinf),
    *(torch.frac, torch.round, torch.floor, torch.exp, torch.log, torch.log1p, torch.sqrt),
    *(torch.asinh, torch.acosh, torch.atanh, torch.square, torch.reciprocal, torch.nan_to_num),
    lambda a: torch.clamp(a, -1, 2),
    lambda a: torch.clamp_max(a, 2),
    lambda a: (a > 0, a >= a, a == a, a != 1, a < 2, a <= a),
    lambda a: (a.max(), a.min(), a.argmax(), a.argmin(), a.amax(), a.sum()),
    lambda a: torch.softmax(a, 0),
    lambda a: torch.logsumexp(a, 0),
    lambda a: torch.heaviside(a, torch.tensor(0.5)),
    lambda a: torch.copysign(torch.ones(9), a),
    lambda a: (torch.copysign(a.abs(), -0.0), torch.copysign(a.abs(), 2.0)),
    lambda a: (torch.fmax(a, a.flip(0)), torch.fmin(a, a.flip(0))),
    lambda a: (torch.maximum(a, a.flip(0)), torch.minimum(a, a.flip(0))),
    lambda a: torch.logaddexp(a, a.flip(0)),
    lambda a: torch.hypot(a, a.flip(0)),
    lambda a: torch.xlogy(a, a.flip(0)),
    lambda a: (torch.remainder(a, 3), torch.fmod(a, 3), torch.floor_divide(a, 3)),
    lambda a: (a**2, a**3, a**-1, a**0.5, a**-0.5, a**0, a**-2, a**2.5),
    lambda a: (torch.cumsum(a[3:], 0), torch.cumprod(a[3:], 0)),
    lambda a: a.to(torch.float16),
    lambda a: a.to(torch.bool),
)

# A number for either argument, but of the incomplete gamma functions.
OF_TWO = [getattr(torch.special, name) for name in SPECIAL[1] if not name.startswith("gamma")]

ENLARGED = (
    *((mode, rank) for mode in ("nearest", "nearest-exact") for rank in (1, 2, 3)),
    *(("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)),
)


def enlarging(mode: str, rank: int, **how: bool) -> Callable[[], Any]:
    return lambda: F.interpolate(x(1, 2, *(3, 4, 2)[:rank]), scale_factor=2, mode=mode, **how)


PROGRAMS: list[Callable[[], Any]] = [
    *(on_specials(function) for function in SPECIALS),
    # what no operator of torch's database calls
    lambda: torch.searchsorted(torch.arange(5.0), 1.5),
    lambda: torch.bucketize(1.5, torch.arange(5.0)),
    lambda: x(3, 7).sort(dim=0, stable=True),
    lambda: torch.ops.prims.fma(torch.randn(5), torch.randn(5), torch.randn(5)),
    lambda: [of(x(4).abs() + 1, 2.0) for of in OF_TWO],
    lambda: [of(2.5, x(4).abs() + 1) for of in OF_TWO],
    lambda: torch.special.modified_bessel_i0(x(9)) + torch.special.modified_bessel_i1(x(9)),
    lambda: torch.ops.weft.philox(torch.tensor(-5), 2, [3, 4]),
    lambda: torch.fake_quantize_per_tensor_affine(x(7), 0.1, 1, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(
        x(7, 2), torch.rand(2), torch.zeros(2, dtype=torch.int32), 1, -8, 7
    ),
    lambda: aten._fake_quantize_learnable_per_tensor_affine(
        x(7), torch.tensor([0.3]), torch.tensor([2.5]), -8, 7, 1.0
    ),
    lambda: aten._fake_quantize_learnable_per_channel_affine(
        x(7, 2), torch.tensor([0.3, 0.2]), torch.tensor([1.5, -2.5]), 1, -8, 7, 1.0
    ),
    lambda: torch._int_mm(ints(3, 5).to(torch.int8), ints(5, 4).to(torch.int8)),
    lambda: torch._scaled_mm(
        x(16, 32).to(torch.float8_e4m3fn),
        x(48, 32).to(torch.float8_e4m3fn).t(),
        torch.tensor(0.5),
        torch.tensor(0.3),
        out_dtype=torch.bfloat16,
    ),
    lambda: torch._weight_int8pack_mm(
        x(3, 32).bfloat16(), ints(4, 32).to(torch.int8), torch.rand(4).bfloat16()
    ),
    lambda: torch.randn(5, 4).scatter(0, torch.randint(5, (7, 4)), 2.0, reduce="multiply"),
    lambda: torch.randn(5, 4).scatter(0, torch.randint(5, (7, 4)), torch.randn(7, 4), reduce="add"),
    # scalars on either side
    lambda: (ints(5) & 3, ints(5) | 3, ints(5) ^ 3, ~ints(5), ints(5) << 2, ints(5) >> 1),
    lambda: (
        aten.bitwise_and(3, ints(5)),
        aten.bitwise_or(3, ints(5)),
        aten.bitwise_xor(3, ints(5)),
    ),
    lambda: (
        ints(5) & ints(5),
        ints(5) | ints(5),
        ints(5) ^ ints(5),
        ints(3).abs() << ints(3).abs(),
    ),
    lambda: (
        aten.bitwise_left_shift(3, ints(4).abs()),
        aten.bitwise_right_shift(99, ints(4).abs()),
    ),
    lambda: (aten.bitwise_left_shift(ints(4), 2), aten.bitwise_right_shift(ints(4), 2)),
    lambda: (
        aten.bitwise_left_shift(ints(4), ints(4).abs()),
        aten.__lshift__(ints(4), ints(4).abs()),
    ),
    lambda: (
        aten.bitwise_right_shift(ints(4), ints(4).abs()),
        aten.__rshift__(ints(4), ints(4).abs()),
    ),
    lambda: (aten.__lshift__(ints(4), 2), aten.__rshift__(ints(4), 2)),
    lambda: (ints(5) // 3, ints(5) % 3, 7 % ints(5).abs().add(1), aten.fmod.Scalar(ints(5), 3)),
    lambda: (
        aten.remainder.Scalar_Tensor(7, x(5)),
        aten.div.Scalar_mode(x(5), 2, rounding_mode="floor"),
    ),
    lambda: (aten.floor_divide.Scalar(x(5), 2), aten.floor_divide(ints(5), torch.tensor(2))),
    lambda: (ints(5) == 2.5, ints(5) < torch.tensor(1.5), ints(5).int() >= 2**40, x(3) > 1),
    lambda: (x(3) + torch.tensor(1.0, dtype=torch.float64), ints(3) * 1.5, ints(3) / 2, 2 - x(3)),
    lambda: (torch.xlogy(2, x(3).abs()), torch.xlogy(x(3), 2)),
    lambda: (torch.special.xlog1py(2, x(3).abs()), torch.special.xlog1py(x(3), 2)),
    lambda: (ints(5) ** 2, 2 ** ints(5).abs(), ints(5) ** ints(5).abs(), 2.0 ** x(3), x(3) ** x(3)),
    lambda: torch.where(x(3, 1) > 0, x(4), ints(3, 4)),
    lambda: (
        aten.masked_fill.Tensor(x(3), x(3) > 0, torch.tensor(2.0)),
        aten.fill.Tensor(x(3), x(())),
    ),
    # casts, copies, factories
    lambda: [x(5).mul(9).to(d) for d in (torch.int8, torch.int64, torch.bool, torch.bfloat16)],
    lambda: (aten.copy(x(3, 4), ints(4)), aten.lift_fresh_copy(x(3)), aten.zero(x(3))),
    lambda: (
        aten._reshape_alias(x(3, 4), [4, 3], [3, 1]),
        aten.unsafe_split_with_sizes(x(5), [2, 3]),
    ),
    lambda: (
        aten._unsafe_index(x(5, 4), [None, torch.tensor([0, -1])]),
        aten.view_copy(x(4), [2, 2]),
    ),
    lambda: (aten.permute_copy(x(2, 3), [1, 0]), aten.expand_copy(x(1, 3), [2, 3])),
    lambda: (aten.native_dropout(x(3), 0.0, True), aten.native_dropout(x(3), 0.5, False)),
    lambda: (aten.norm.Scalar(x(3), 2), aten.norm.ScalarOpt_dim(x(3, 2), 1, [0])),
    lambda: aten.norm.ScalarOpt_dim_dtype(x(3, 2), 2, [0], True, dtype=torch.float64),
    lambda: torch.histogram(torch.empty(0), 4),
    lambda: [
        aten.embedding_renorm(torch.randn(6, 5), torch.tensor([[1, 2, 1], [4, 0, 0]]), 0.7, order)
        for order in (2.0, 1.0, 0.0, 0.5, 3.0, -1.0, math.inf, -math.inf)
    ],
    lambda: torch.as_strided(torch.randn(4, 5).t(), (3, 2), (5, 2), 1),
    # networks
    lambda: nn.BatchNorm2d(4).eval()(x(2, 4, 3, 3)),
    lambda: batch_norms(torch.float32),
    lambda: batch_norms(torch.bfloat16),
    lambda: F.scaled_dot_product_attention(x(2, 3, 5, 4), x(2, 3, 7, 4), x(2, 3, 7, 4)),
    lambda: F.scaled_dot_product_attention(
        x(2, 3, 5, 4), x(2, 3, 5, 4), x(2, 3, 5, 4), is_causal=True
    ),
    lambda: F.conv2d(x(2, 4, 7, 6), x(6, 2, 3, 2), x(6), (2, 1), (1, 2), (1, 2), 2),
    lambda: F.conv1d(x(2, 6, 9), x(6, 1, 3), groups=6, padding=1),
    lambda: F.conv_transpose2d(x(2, 4, 3, 3), x(4, 3, 3, 3), x(6), 2, 1, 1, 2),
    lambda: F.max_pool2d(x(2, 3, 7, 7), 3, 2, 1, ceil_mode=True),
    lambda: F.avg_pool2d(x(2, 3, 7, 7), 3, 2, 1, ceil_mode=True, count_include_pad=False),
    lambda: F.adaptive_avg_pool2d(x(2, 3, 8, 7), (4, 3)),
    *(enlarging(mode, rank) for mode, rank in ENLARGED),
    *(enlarging(mode, 2, antialias=True) for mode in ("bilinear", "bicubic", "lanczos")),
    lambda: F.cross_entropy(x(5, 7), torch.tensor([1, -100, 3, 6, 0]), label_smoothing=0.1),
    lambda: x(5, 4, 3)[:, torch.tensor([[0, 1], [-1, 2]]), torch.tensor([0, 2])],
    lambda: x(5, 4, 3)[torch.tensor([0, 1]), :, torch.tensor([0, 2])],
    lambda: torch.cat([x(0), x(2), torch.ones(3, dtype=torch.int64)]),
    lambda: torch.ops.aten.amax(torch.ones(2, 0, 3), [2]),
]


def attention_calls() -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8)
    wide = torch.randn(2, 4, 7, 8)
    mask = torch.rand(5, 7) > 0.3
    mask[2] = False  # a row that sees nothing
    for name in ("scaled_dot_product_attention", "_scaled_dot_product_attention_math"):
        op = getattr(aten, name).default
        yield op, (q, k, k), {"enable_gqa": True}
        yield op, (q, wide, wide), {"scale": 0.5}
        yield op, (q, wide, wide, mask), {}
        yield op, (q, wide, wide, torch.randn(2, 1, 5, 7)), {}
        yield op, (q, wide, wide, None, 0.0, True), {}
        yield op, (q[0].bfloat16(), wide[0].bfloat16(), wide[0].bfloat16()), {}
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    yield flash, (q, wide, wide, 0.0, False), {"attn_mask": torch.randn(5, 7)}


def COMPOSITES() -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Ops that capture keeps whole, though torch takes them apart before dispatch."""
    a, w, b = torch.randn(2, 3, 8), torch.randn(5, 8), torch.randn(5)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        h, v, c = a.to(dtype), w.to(dtype), b.to(dtype)
        yield aten.one_hot.default, (torch.arange(12).reshape(3, 4) % 5, 5), {}
        yield aten.linear.default, (h, v, c), {}
        yield aten.linear.default, (h, v), {}
        yield aten.layer_norm.default, (h, [8], v[0], v[1], 1e-5), {}
        yield aten.layer_norm.default, (h, [3, 8]), {}
        yield aten.rms_norm.default, (h, [8], v[0]), {}
        yield aten.rms_norm.default, (h, [8], None, 1e-6), {}
    yield aten._fused_rms_norm.default, (a, [8], w[0], 1e-5), {}
    yield aten.reshape.default, (a, [4, -1]), {}
    yield from attention_calls()
