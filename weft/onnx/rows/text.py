"""Operators of strings, which are NumPy arrays of objects: they run in Python, outside of kernels.

StringConcat(a, b)
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.onnx.rows.pointwise import is_text
from weft.onnx.table import op
from weft.onnx.types import refuse

ML = "ai.onnx.ml"
Array = Any  # of objects


def each(function: Callable[[Any], Any], x: Any, dtype: Any = object) -> Any:
    """The function of each element, in an array of the same shape."""
    found = np.empty(x.shape, dtype)
    for at in np.ndindex(x.shape):
        found[at] = function(x[at])
    return found


@op("StringConcat")
def string_concat(a: Array, b: Array) -> Array:
    return np.array(np.add(a, b), object)


@op("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: str) -> Tensor:
    return torch.from_numpy(each(lambda s: bool(re.fullmatch(pattern, s)), x, bool))


@op("StringSplit")
def string_split(
    x: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Tensor]:
    """The parts, padded with empty strings, and how many there are."""
    most = -1 if maxsplit is None else maxsplit
    parts = [s.split(delimiter or None, most) for s in x.reshape(-1)]
    widest = max(map(len, parts), default=0)
    table = np.array([[*p, *[""] * (widest - len(p))] for p in parts], object)
    counts = torch.tensor([len(p) for p in parts], dtype=torch.int64)
    return table.reshape(*x.shape, widest), counts.reshape(x.shape)


def plain(text: str) -> str:
    """Without accents."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return "".join(c for c in letters if not unicodedata.combining(c))


@op("StringNormalizer")
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: tuple[str, ...] = (),
) -> Array:
    """Changes case and leaves out stop words; no string at all becomes one that is empty."""
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}.get(case_change_action)
    if change is None:
        refuse(f"unknown case_change_action {case_change_action!r}")
    fold = str if is_case_sensitive else str.lower
    stops = {fold(word) for word in stopwords}
    rows = x.reshape(-1, x.shape[-1])
    kept = [[change(plain(s)) for s in row if fold(s) not in stops] for row in rows]
    kept = [row or [""] for row in kept]
    if len({len(row) for row in kept}) > 1:
        refuse("rows of different lengths are left without the stop words")
    return np.array(kept, object).reshape(*x.shape[:-1], len(kept[0]))


@op("TfIdfVectorizer")
def tf_idf(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
) -> Tensor:
    """How often each n-gram of a pool occurs in a row, with up to so many words skipped between."""
    pool = pool_int64s or pool_strings or ()
    grams: dict[tuple[Any, ...], int] = {}
    bounds = [*ngram_counts, len(pool)]
    number = 0
    for length, (start, end) in enumerate(itertools.pairwise(bounds), 1):
        for at in range(start, end, length):
            if min_gram_length <= length <= max_gram_length:
                grams[pool[at : at + length]] = ngram_indexes[number]
            number += 1
    table = x if is_text(x) else x.tolist()
    rows = [table] if len(x.shape) == 1 else list(table)
    found = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for counts, row in zip(found, rows, strict=True):
        for length in range(min_gram_length, max_gram_length + 1):
            for step in range(1, 2 if length == 1 else max_skip_count + 2):
                for at in range(len(row) - (length - 1) * step):
                    gram = tuple(row[at + i * step] for i in range(length))
                    if gram in grams:
                        counts[grams[gram]] += 1
    by = np.array(weights or 1, np.float32)
    values = {"TF": found, "IDF": (found > 0) * by, "TFIDF": found * by}[mode]
    return torch.from_numpy(values.astype(np.float32).reshape(*x.shape[:-1], -1))


@op("LabelEncoder", domain=ML)
def label_encoder(
    x: Any,
    *,
    keys_floats: Any = None,
    keys_int64s: Any = None,
    keys_strings: Any = None,
    keys_tensor: Any = None,
    values_floats: Any = None,
    values_int64s: Any = None,
    values_strings: Any = None,
    values_tensor: Any = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
) -> Any:
    """The value of each key; the default of what is no key."""
    keys = next(k for k in (keys_floats, keys_int64s, keys_strings, keys_tensor) if k is not None)
    kinds: tuple[Any, ...] = (
        (values_floats, default_float, torch.float32),
        (values_int64s, default_int64, torch.int64),
        (values_strings, default_string, None),
        (values_tensor, default_tensor, None),
    )
    values, default, dtype = next(k for k in kinds if k[0] is not None)
    if isinstance(values, Tensor):
        default, dtype = values.new_zeros(()) if default is None else default, values.dtype
    if is_text(values) and default is not None:
        default = default.reshape(-1)[0]
    if is_text(x) or dtype is None:
        plain_keys, plain_values = (
            v.tolist() if hasattr(v, "tolist") else v for v in (keys, values)
        )
        known = dict(zip(plain_keys, plain_values, strict=True))
        given = x if is_text(x) else x.numpy()
        found = each(
            lambda key: known.get(key.item() if hasattr(key, "item") else key, default), given
        )
        return found if dtype is None else torch.from_numpy(found.astype(str(dtype)[6:]))
    table = torch.as_tensor(keys, dtype=x.dtype, device=x.device)
    results = torch.as_tensor(values, dtype=dtype, device=x.device)
    same = x.unsqueeze(-1) == table
    last = table.numel() - 1 - same.flip(-1).to(torch.uint8).argmax(-1)
    return torch.where(
        same.any(-1), results[last], torch.as_tensor(default, dtype=dtype).reshape(())
    )
