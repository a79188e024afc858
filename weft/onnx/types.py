"""Element types of ONNX, and how torch stores a tensor of each; numbers that are no tensors.

stored(onnx.TensorProto.INT4)    # torch.int8: torch computes with nothing narrower
as_tensor((2, 3), None)          # tensor([2, 3]): what a shape is while it is a Python value
"""

from __future__ import annotations

from typing import Any, NoReturn

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper

from weft.core.errors import WeftError


class OnnxError(WeftError):
    """An ONNX model that cannot be read, has no torch equivalent, or is given unfit inputs."""


# By ONNX's names. Types of less than a byte are stored in the next wider one that holds them.
STORED = {
    "FLOAT": torch.float32, "DOUBLE": torch.float64, "FLOAT16": torch.float16,
    "BFLOAT16": torch.bfloat16, "COMPLEX64": torch.complex64, "COMPLEX128": torch.complex128,
    "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32, "INT64": torch.int64,
    "UINT8": torch.uint8, "UINT16": torch.uint16, "UINT32": torch.uint32, "UINT64": torch.uint64,
    "BOOL": torch.bool, "FLOAT8E4M3FN": torch.float8_e4m3fn, "FLOAT8E5M2": torch.float8_e5m2,
    "FLOAT8E4M3FNUZ": torch.float8_e4m3fnuz, "FLOAT8E5M2FNUZ": torch.float8_e5m2fnuz,
    "FLOAT8E8M0": torch.float8_e8m0fnu, "FLOAT4E2M1": torch.float32,
    "FLOAT6E2M3": torch.float32, "FLOAT6E3M2": torch.float32,
    "INT4": torch.int8, "UINT4": torch.uint8, "INT2": torch.int8, "UINT2": torch.uint8,
}  # fmt: skip
NARROW = {"INT4": (-8, 7), "UINT4": (0, 15), "INT2": (-2, 1), "UINT2": (0, 3)}
# What NumPy has no dtype of its own for, by the bits that torch and ml_dtypes share.
BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: (torch.uint8, ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu),
}


NUMBERS = 64  # elements of a tensor that may become Python numbers

NAMES = {number: name for name, number in TensorProto.DataType.items()}  # a dict: Dynamo reads it


def name_of(element: int | str) -> str:
    if isinstance(element, str):
        return element  # opset 1 casts to names
    return NAMES.get(element, f"element type {element}")


def stored(element: int | str) -> torch.dtype:
    """The torch dtype that holds an ONNX element type; OnnxError if there is none."""
    name = name_of(element)
    if name not in STORED:
        raise OnnxError(f"torch has no tensors of ONNX's {name}")
    return STORED[name]


def from_numpy(array: np.ndarray[Any, Any], element: int) -> Any:
    """A tensor with the array's values; strings stay arrays of objects."""
    if name_of(element) == "STRING":
        return array.astype(object)
    dtype = stored(element)
    if dtype in BITS:
        bits = torch.from_numpy(np.array(array).view(f"u{array.dtype.itemsize}"))
        return bits.view(dtype) if array.ndim else bits.reshape(1).view(dtype).reshape(())
    plain = str(dtype).removeprefix("torch.")
    return torch.from_numpy(np.array(array.astype(plain, copy=False)))


def to_numpy(value: Any, element: int | None) -> Any:
    """What ONNX's own tests compare: arrays, lists of them for sequences, None for no value."""
    if isinstance(value, list):
        return [to_numpy(item, element) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu().contiguous()
    if value.dtype in BITS:
        bits, dtype = BITS[value.dtype]
        array = value.reshape(-1).view(bits).numpy().view(dtype).reshape(tuple(value.shape))
    else:
        array = value.resolve_conj().resolve_neg().numpy()
    wanted = helper.tensor_dtype_to_np_dtype(element) if element else array.dtype
    return array if array.dtype == wanted else narrowed(array, wanted, element)


def narrowed(array: np.ndarray[Any, Any], wanted: Any, element: int | None) -> Any:
    name = name_of(element or 0)
    return (
        array.astype(wanted) if name in NARROW or name.startswith(("FLOAT4", "FLOAT6")) else array
    )


def is_numbers(value: Any) -> bool:
    """Whether a value is an int64 or bool of rank 0 or 1 that is kept out of tensors."""
    return value is None or isinstance(value, int | tuple | torch.SymInt | torch.SymBool)


def as_tensor(value: Any, device: torch.device | None = None) -> Any:
    """A tensor of Python numbers, on a device as tensors are; other values as they are."""
    if isinstance(value, torch.Tensor) and device is not None and value.device != device:
        return value.to(device)
    if value is None or not is_numbers(value):
        return value
    first = value[0] if isinstance(value, tuple) and value else value
    dtype = torch.bool if isinstance(first, bool | torch.SymBool) else torch.int64
    data = list(value) if isinstance(value, tuple) else value
    return torch.tensor(data, dtype=dtype, device=device)


def as_numbers(value: Any) -> Any:
    """Python numbers of a tensor of rank 0 or 1; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() > 1:
        refuse(f"a list of numbers is wanted, not a tensor of shape {list(value.shape)}")
    return tuple(value.tolist()) if value.dim() else value.item()


def number(value: Any) -> Any:
    """The number in a tuple of one; other values as they are."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def refuse(message: str) -> NoReturn:
    raise OnnxError(message)
