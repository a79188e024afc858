"""ONNX's classical machine learning: ensembles of trees, features.

TreeEnsemble(x, nodes_featureids=(0, 0, 0), ...)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from weft.onnx.table import op
from weft.onnx.types import refuse

ML = "ai.onnx.ml"
MEMBER = 6  # the last of the modes: <=, <, >=, >, ==, !=, one of a set
AVERAGE, SUM, MIN, MAX = range(4)
POST = {0: lambda x: x, 1: lambda x: torch.softmax(x, -1), 2: torch.sigmoid}
Ints = tuple[int, ...]


def depth_of(roots: Ints, nexts: list[tuple[int, int]], nodes: int) -> int:
    """How many questions lead from a root to its last leaf."""
    level, count = set(roots), 0
    while level:
        level = {n for at in level for n in nexts[at] if n < nodes}
        count += 1
        if count > nodes:
            refuse("the nodes of a tree form a circle")
    return count


def members(modes: list[int], values: Tensor | None) -> list[list[float]]:
    """For each node the values that it asks for membership of, by NaN apart in one list."""
    sets: list[list[float]] = [[]]
    for value in values.tolist() if values is not None else ():
        if math.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    given = iter(sets)
    found = [next(given) if mode == MEMBER else [] for mode in modes]
    widest = max(map(len, found), default=0)
    return [row + [math.nan] * (widest - len(row)) for row in found]


@op("TreeEnsemble", domain=ML)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = SUM,
    leaf_targetids: Ints,
    leaf_weights: Tensor,
    membership_values: Tensor | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_hitrates: Tensor | None = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Tensor,
    nodes_splits: Tensor,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> Tensor:
    """All rows go down all trees at once; leaves stand behind the nodes, and lead to themselves."""
    if post_transform not in POST:
        refuse(f"post_transform {post_transform} has no row")
    nodes, leaves = len(nodes_featureids), len(leaf_targetids)
    pairs = (nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs)
    ways = [[n + nodes * leaf for n, leaf in zip(*pair, strict=True)] for pair in pairs]
    ends = range(nodes, nodes + leaves)
    table = torch.tensor([[*way, *ends] for way in ways], device=x.device)
    modes = torch.cat([nodes_modes.long(), nodes_modes.new_zeros(leaves, dtype=torch.int64)])
    splits = torch.cat([nodes_splits, nodes_splits.new_zeros(leaves)])
    features = torch.tensor([*nodes_featureids, *[0] * leaves], device=x.device)
    missing = nodes_missing_value_tracks_true or (0,) * nodes
    tracks = torch.tensor([*missing, *[0] * leaves], device=x.device).bool()
    rows = members(nodes_modes.tolist(), membership_values)
    sets = torch.tensor(rows, dtype=x.dtype, device=x.device).reshape(nodes, -1)
    sets = torch.cat([sets, sets.new_zeros(leaves, sets.shape[1])])
    at = torch.tensor(tree_roots, device=x.device).expand(x.shape[0], -1)
    for _ in range(depth_of(tree_roots, list(zip(*ways, strict=True)), nodes)):
        value, split = torch.gather(x, 1, features[at]), splits[at]
        answers = torch.stack(
            [value <= split, value < split, value >= split, value > split, value == split,
             value != split, (value.unsqueeze(-1) == sets[at]).any(-1)]
        )  # fmt: skip
        true = torch.gather(answers, 0, modes[at].unsqueeze(0))[0] | (value.isnan() & tracks[at])
        at = torch.where(true, table[0][at], table[1][at])
    targets = torch.tensor(leaf_targetids, device=x.device)[at - nodes]
    found = gathered(
        leaf_weights[at - nodes], targets, n_targets, len(tree_roots), aggregate_function
    )
    return POST[post_transform](found)


def gathered(weights: Tensor, targets: Tensor, count: int, trees: int, function: int) -> Tensor:
    """The weights of a row's leaves, by target."""
    start = {MIN: torch.finfo(weights.dtype).max, MAX: torch.finfo(weights.dtype).min}
    empty = weights.new_full((weights.shape[0], count), start.get(function, 0.0))
    reduce = {MIN: "amin", MAX: "amax"}.get(function, "sum")
    found = empty.scatter_reduce(1, targets, weights, reduce)
    return found / trees if function == AVERAGE else found


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Tensor, indices: Tensor) -> Tensor:
    found = x.index_select(-1, indices.reshape(-1).long())
    return found.reshape(1, -1) if x.dim() == 1 else found


@op("Binarizer", domain=ML)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


@op("Scaler", domain=ML)
def scaler(x: Tensor, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Tensor:
    moved = x.float() - torch.tensor(offset, device=x.device)
    return moved * torch.tensor(scale, device=x.device)


@op("Normalizer", domain=ML)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    x = x.float()
    by = {"MAX": x.amax(-1, keepdim=True), "L1": x.abs().sum(-1, keepdim=True),
          "L2": x.square().sum(-1, keepdim=True).sqrt()}[norm]  # fmt: skip
    return torch.where(by == 0, x, x / by)
