"""All that is asked of JAX itself: jaxprs, dtypes, source lines, values that are known.

traced(fn, args)              # the closed jaxpr of fn, and the tree of its results
"""

import traceback
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from weft.core.errors import CaptureError, UnsupportedOpError, WeftError
from weft.frontend.lines import innermost_line

# Unsigned integers that torch cannot compute with, in a wider type; rows mask what overflows.
WIDER = {"uint16": (torch.int32, 0xFFFF), "uint32": (torch.int64, 0xFFFFFFFF)}
DTYPES = {
    "bool": torch.bool,
    **{
        name: getattr(torch, name)
        for name in """float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 complex64
        complex128""".split()
    },
    **{name: dtype for name, (dtype, _) in WIDER.items()},
}
X64 = "float64", "int64", "uint64", "complex128"


@cache
def library() -> Any:
    """JAX's modules. WeftError where it is not installed."""
    try:
        import jax
        from jax._src import core, source_info_util
        from jax._src.lax import special
        from jax._src.random import core as random
        from jax._src.random import prng, threefry2x32
    except ImportError as error:
        raise WeftError(f"weft.from_jax needs JAX: pip install weft[jax] ({error})") from error
    return SimpleNamespace(
        jax=jax, core=core, source=source_info_util, special=special, prng=prng, random=random,
        threefry=threefry2x32,
    )  # fmt: skip


def traced(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The closed jaxpr of a call of fn with such arrays, and the tree of its results.

    CaptureError says what JAX says where it cannot be traced, as where shapes do not fit.
    """
    jax = library().jax
    try:
        jaxpr, shape = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    except WeftError:
        raise
    except Exception as error:
        told = " ".join(str(error).split("\n\n")[0].split())
        name = getattr(fn, "__name__", type(fn).__name__)
        raise CaptureError(f"JAX cannot trace {name}: {told}", raised_at(error)) from error
    return jaxpr, jax.tree_util.tree_structure(shape)


def raised_at(error: BaseException) -> str | None:
    """The innermost line of the user's that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    users = (f for f in frames if library().source.is_user_filename(f.filename))
    return innermost_line("\n".join(f'File "{f.filename}", line {f.lineno}' for f in users))


def stack_of(eqn: Any) -> str:
    """The lines of the user's that an equation of a jaxpr comes from, as a traceback has them."""
    frames = [*library().source.user_frames(eqn.source_info.traceback)]
    lines = (f'File "{f.file_name}", line {f.start_line}, in {f.function_name}' for f in frames)
    return "\n".join([*lines][::-1])


def held(dtype: Any, where: str | None = None) -> torch.dtype:
    """The torch dtype that holds values of a NumPy dtype. UnsupportedOpError if there is none."""
    name = np.dtype(dtype).name
    if name not in DTYPES:
        raise UnsupportedOpError(f"torch has no arithmetic of JAX's {name}", where)
    return DTYPES[name]


def physical(aval: Any) -> Any:
    """The type of an array; of random keys that of the words that they are made of."""
    core = library().core
    return core.physical_aval(aval) if is_key(aval.dtype) else aval


def evaluated(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """What JAX itself computes of an equation whose operands are known."""
    with library().jax.ensure_compile_time_eval():
        found = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(found) if eqn.primitive.multiple_results else [found]


def known_tensor(value: Any) -> torch.Tensor:
    """A known value as a tensor of its own."""
    prng = library().prng
    if isinstance(value, prng.PRNGKeyArray):
        value = value._base_array  # type: ignore[attr-defined]
    return as_held(np.array(value))


def as_held(array: np.ndarray) -> torch.Tensor:
    dtype = held(array.dtype)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    wider = array.dtype.name in WIDER
    return torch.from_numpy(array.astype(np.int64) if wider else array).to(dtype)


# --- primitives that are defined by others --------------------------------------------------------


def _seed(avals: Any, impl: Any) -> Callable[..., Any]:
    return lambda seeds: library().prng.random_seed_impl_base(seeds, impl=impl)


def _split(avals: Any, shape: Any) -> Callable[..., Any]:
    keys = avals[0]
    impl, rank = keys.dtype._impl, keys.ndim
    return lambda base: library().prng.random_split_impl_base(impl, base, rank, shape=shape)


def _fold_in(avals: Any) -> Callable[..., Any]:
    keys = avals[0]
    impl, shape = keys.dtype._impl, keys.shape
    return lambda base, msgs: library().prng.random_fold_in_impl_base(impl, base, msgs, shape)


def _bits(avals: Any, bit_width: int, shape: Any) -> Callable[..., Any]:
    impl, rank = avals[0].dtype._impl, avals[0].ndim
    how = {"bit_width": bit_width, "shape": shape}
    return lambda base: library().prng.random_bits_impl_base(impl, base, rank, **how)


def _gamma(avals: Any, log_space: bool) -> Callable[..., Any]:
    impl, parts = avals[0].dtype._impl, library()

    def gamma(base: Any, a: Any) -> Any:
        keys = parts.prng.random_wrap(base, impl=impl)
        return parts.random._gamma_impl(keys, a, log_space=log_space, use_vmap=True)

    return gamma


def _threefry(avals: Any) -> Callable[..., Any]:
    rounds = library().threefry._threefry2x32_lowering
    return lambda *words: tuple(rounds(*words, use_rolled_loops=False))


def _of_dtype(name: str) -> Callable[..., Any]:
    def expansion(avals: Any) -> Callable[..., Any]:
        impl, dtype = getattr(library().special, f"{name}_impl"), avals[0].dtype
        return lambda *args: impl(*args, dtype=dtype)

    return expansion


# primitive -> (types of its operands, parameters) -> the function of JAX that computes it
EXPANSIONS: dict[str, Callable[..., Callable[..., Any]]] = {
    "random_seed": _seed,
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_bits": _bits,
    "random_gamma": _gamma,
    "threefry2x32": _threefry,
    **{
        name: _of_dtype(name)
        for name in ("regularized_incomplete_beta", "random_gamma_grad", "igamma_grad_a")
    },
}


def expanded(eqn: Any, avals: Sequence[Any]) -> Any:
    """The closed jaxpr of a primitive that others define; None where there is none."""
    make = EXPANSIONS.get(eqn.primitive.name)
    if make is None:
        return None
    fn = make([v.aval for v in eqn.invars], **eqn.params)
    given = [library().jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    return library().jax.make_jaxpr(fn)(*given)


# --- arrays over dlpack ---------------------------------------------------------------------------


def is_jax(x: Any) -> bool:
    return isinstance(x, library().jax.Array)


def is_key(dtype: Any) -> bool:
    """Whether it is a dtype of random keys."""
    return library().jax.dtypes.issubdtype(dtype, library().jax.dtypes.extended)


def to_torch(x: Any) -> torch.Tensor:
    """The same memory as a tensor, in the dtype that holds its values."""
    if isinstance(x, torch.Tensor):
        return x.to(WIDER[name][0]) if (name := str(x.dtype)[6:]) in WIDER else x
    if is_jax(x):
        x.block_until_ready()
        x = library().jax.random.key_data(x) if is_key(x.dtype) else x
        tensor = torch.from_dlpack(x)
        wide = WIDER.get(x.dtype.name)
        return tensor if wide is None else tensor.to(wide[0])
    return as_held(np.array(library().jax.numpy.asarray(x)))


def to_jax(tensor: torch.Tensor, dtype: Any) -> Any:
    """The same memory as a JAX array of that dtype."""
    jax = library().jax
    name = "uint32" if is_key(dtype) else np.dtype(dtype).name
    if name in WIDER:
        tensor = tensor.to(getattr(torch, name))
    array = jax.dlpack.from_dlpack(tensor.detach().contiguous())
    return jax.random.wrap_key_data(array, impl=dtype._impl.name) if is_key(dtype) else array
