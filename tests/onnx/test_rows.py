"""Rows beside ONNX's own definitions: attributes, defaults and inputs of every version of each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from onnx import defs, helper

import weft.onnx.load  # noqa: F401  it enters the rows
from weft.onnx.build import IGNORED
from weft.onnx.table import ROWS, find

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
SCHEMAS = [s for s in defs.get_all_schemas_with_history() if s.domain in DOMAINS]
# What a row does not take, so that a model with it is refused, or takes in another way.
APART = {
    ("LabelEncoder", "classes_strings"),  # opset 1: a table by position
    ("Gradient", "xs"), ("Gradient", "y"), ("Gradient", "zs"),  # become its body
}  # fmt: skip
OTHERWISE = {
    ("GridSample", "mode"),  # "bilinear" and "linear" are one
    ("Clip", "max"), ("Clip", "min"),  # no bound, where ONNX has the largest number
    ("Dropout", "is_test"), ("BatchNormalization", "is_test"),  # nothing trains without saying so
    ("ConstantOfShape", "value"),
}  # fmt: skip


def schemas() -> list[Any]:
    return [s for s in SCHEMAS if find(s.domain, s.name, s.since_version) is not None]


def parameters(schema: Any) -> dict[str, inspect.Parameter]:
    row = find(schema.domain, schema.name, schema.since_version)
    assert row is not None
    return dict(inspect.signature(row.function).parameters)


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(plain, value)) if isinstance(value, list) else value


def test_most_operators_have_a_row_or_a_definition() -> None:
    newest = {(s.domain, s.name): s for s in SCHEMAS}
    known = [k for k, s in newest.items() if k in ROWS or s.has_function]
    assert len(known) >= 210


def differences(schema: Any) -> Iterator[str]:
    taken = parameters(schema)
    kinds = {p.kind for p in taken.values()}
    several = inspect.Parameter.VAR_POSITIONAL in kinds
    positional = [p for p in taken.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if not several and len(positional) < len(schema.inputs):
        yield f"takes {len(positional)} inputs of {len(schema.inputs)}"
    for name, attribute in schema.attributes.items():
        if name in IGNORED or (schema.name, name) in APART:
            continue
        if name not in taken:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                yield f"has no attribute {name}"
            continue
        if attribute.default_value.type and (schema.name, name) not in OTHERWISE:
            default = plain(helper.get_attribute_value(attribute.default_value))
            exact = pytest.approx(default, rel=1e-6) if isinstance(default, float) else default
            if taken[name].default != exact:
                yield f"{name} is {taken[name].default} without one, not {default}"


def test_attributes_and_inputs() -> None:
    wrong = {f"{s.name}-{s.since_version}": [*differences(s)] for s in schemas()}
    assert len(wrong) > 500 and {k: v for k, v in wrong.items() if v} == {}
