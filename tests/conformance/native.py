"""Counts OpInfo's operators that weft computes itself: python -m tests.conformance.native.

An operator with its variant is native in a dtype if each of its samples that eager runs, without
gradients, is captured whole and calls nothing of ATen's but the draw of one seed. The others are
told, with the reason of the first sample that is not.
"""

from __future__ import annotations

import argparse
import random
import warnings
from typing import Any
from unittest.mock import patch

import torch

from tests.captures import capture_call
from tests.conformance.cases import DTYPES, chosen, fresh, operators
from weft.core.errors import CaptureError, WeftError
from weft.frontend.lower import to_tensor
from weft.tensor.ops import Extern

NOTHING = "the call has no graph"  # what capture says of a sample without a computation


def reason(op: Any, sample: Any) -> str:
    """Why a sample is not native; "" where it is, or where eager refuses it."""

    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op.op(x, *args, **kwargs)

    x, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
    try:
        program(x, *args, **kwargs)
    except Exception:
        return ""
    torch.compiler.reset()
    try:
        captured = capture_call(program, (x, *args), kwargs, fused_random=True)
        graph = to_tensor(captured.graph)
    except CaptureError as error:
        return "" if NOTHING in str(error) else str(error)
    except WeftError as error:
        return str(error)
    except Exception as error:  # what torch raises while it is traced
        return f"{type(error).__name__}: {error}"
    calls = [n.op for n in graph.nodes() if isinstance(n.op, Extern) and not is_seed(n.op)]
    return next((f"{call.target}: {call.reason}" for call in calls), "")


def is_seed(call: Extern) -> bool:
    """Whether it draws the one number of a call that weft's random bits are made of."""
    return call.target == "aten.randint.low" and call.results[0].shape == ()


def not_native(op: Any, dtype: torch.dtype, most: int) -> str:
    """The reason of the first sample that is not native, "" where all are."""
    torch.manual_seed(0)
    random.seed(0)
    samples = list(op.sample_inputs("cpu", dtype))
    found = (reason(op, samples[i]) for i in chosen(len(samples), most))
    return next((told for told in found if told), "").strip().split("\n")[0][:150]


def without_seeds() -> Any:
    """Torch's operators with random numbers as users call them: OpInfo's are wrapped to set seeds,
    which no compiler follows.
    """
    path = "torch.testing._internal.common_methods_invocations.wrapper_set_seed"
    return patch(path, lambda op, *args, **kwargs: op(*args, **kwargs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.native")
    parser.add_argument("--ops", default="", help="names that hold one of these, by commas")
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--samples", type=int, default=8, help="of each operator; 0: all")
    given = parser.parse_args()
    dtype, count, others = DTYPES[given.dtype], 0, 0
    for name, op in operators().items():
        named = any(word in name for word in given.ops.split(","))
        if named and dtype in op.supported_dtypes("cpu"):
            with without_seeds():
                told = not_native(op, dtype, given.samples)
            count, others = count + 1, others + bool(told)
            if told:
                print(f"{name}: {told}", flush=True)
    print(f"{count - others} of {count} are native in {given.dtype}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
