"""Collectives of torch.distributed: operators that all processes of a group call in one order.

starts("_c10d_functional.all_reduce.default")   # True: its result is there after a wait alone
is_ordered("_dtensor.shard_dim_alltoall.default")   # True, but it waits by itself
"""

import torch

WAIT = "_c10d_functional.wait_tensor.default"
# The namespaces of collectives, and whether the calls of each return before they are done.
NAMESPACES = {
    "_c10d_functional": True,
    "_c10d_functional_autograd": True,
    "_dtensor": False,
    "symm_mem": False,
}

# Collectives of one tensor, and those of a list of them that do the same in one go.
COALESCED = {
    "_c10d_functional.all_reduce.default": "_c10d_functional.all_reduce_coalesced.default",
}


def is_ordered(target: str) -> bool:
    """Whether all processes have to call the operator in one order: each collective, no wait."""
    return target.partition(".")[0] in NAMESPACES and target != WAIT


def starts(target: str) -> bool:
    """Whether the operator reads and writes memory until somebody waits for its result."""
    return is_ordered(target) and NAMESPACES[target.partition(".")[0]]


def wait(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, once the collective that makes it is done; at once where none does."""
    return torch.ops._c10d_functional.wait_tensor.default(tensor)
