"""-c text: what becomes the program, what its inputs, what is made once."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn

from weft.cli.check import run_eager
from weft.cli.inline import load_inline
from weft.cli.program import Source
from weft.core.errors import SourceError


def shapes(source: Source) -> dict[str, tuple[int, ...]]:
    names = inspect.signature(source.callable).parameters
    return {n: tuple(a.shape) for n, a in zip(names, source.args, strict=True)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "torch.relu((torch.randn(16,64) + torch.randn(64)) @ torch.randn(64,16))",
            {"x": (16, 64), "bias": (64,), "w": (64, 16)},
        ),
        ("torch.rand(3) * torch.ones(3)", {"x": (3,), "y": (3,)}),
        ("torch.randn(2,3) @ torch.randn(3,4) @ torch.randn(4,5)",
         {"x": (2, 3), "w": (3, 4), "w1": (4, 5)}),
        ("torch.cat([torch.randn(1), torch.randn(2), torch.randn(3), torch.randn(4)])",
         {"x": (1,), "y": (2,), "z": (3,), "x3": (4,)}),
        ("F.linear(torch.randn(2, 3), weight=torch.randn(4, 3))", {"x": (2, 3), "weight": (4, 3)}),
        ("torch.randn(4, 4).t()", {"x": (4, 4)}),
        ("x = 2\ntorch.randn(3) * x", {"y": (3,)}),
        ("a = torch.randn(2, 3)\nb = torch.randn(3)\na + b", {"a": (2, 3), "b": (3,)}),
        ("y = torch.randn(3).exp()", {"x": (3,)}),
        ("torch.arange(10)", {}),
        ("from torch import randn\nrandn(5).sin()", {"x": (5,)}),
    ],
)  # fmt: skip
def test_inputs_and_their_names(text: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert shapes(load_inline(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "torch.relu((torch.randn(16,64) + torch.randn(64)) @ torch.randn(64,16))",
        "F.relu(nn.Linear(8, 4)(torch.randn(2, 8)) * math.sqrt(2))",
        "m = nn.Linear(8, 8)\nm(torch.randn(2, 8)) + m(torch.ones(2, 8))",
        "w = nn.Parameter(torch.randn(3, 3))\ntorch.randn(2, 3) @ w",
        "torch.vmap(lambda row: row * 2)(torch.randn(4, 3))",
        "def f(x, scale=2):\n    return x * scale\nf(torch.randn(3), scale=3)",
        "torch.stack([torch.randn(2) for _ in range(3)])",
        "torch.randn(5)[torch.randint(0, 5, (3,))]",
        "nn.Linear(4, 4).double()(torch.randn(2, 4).double())",
        "nn.Sequential(\n  nn.Linear(4, 4),\n  nn.ReLU(),\n)(torch.randn(2, 4)).sum()",
    ],
)
def test_value_is_that_of_the_plain_text(text: str) -> None:
    torch.manual_seed(3)
    namespace = {"torch": torch, "nn": nn, "F": nn.functional, "math": __import__("math")}
    *statements, last = text.rpartition("\n") if text.startswith(("m ", "w ", "def")) else [text]
    exec("".join(statements), namespace)
    expected = eval(last, namespace)
    torch.manual_seed(3)
    source = load_inline(text)
    assert torch.equal(source.callable(*source.args, **source.kwargs), expected)


def test_module_call_is_the_module_itself() -> None:
    source = load_inline("torch.nn.RMSNorm(2048)(torch.randn(1,32,2048))")
    assert isinstance(source.callable, nn.RMSNorm)
    assert not source.callable.training
    assert [tuple(a.shape) for a in source.args] == [(1, 32, 2048)]


def test_modules_inside_are_members_made_once() -> None:
    source = load_inline("F.relu(nn.Linear(8, 4)(torch.randn(2, 8)))")
    assert isinstance(source.callable, nn.Module)
    assert [n for n, _ in source.callable.named_parameters()] == ["linear.weight", "linear.bias"]


def test_conversions_belong_to_the_input() -> None:
    (x,) = load_inline("torch.randn(8).to(torch.bfloat16).exp()").args
    assert x.dtype == torch.bfloat16


def test_inputs_that_ask_for_gradients() -> None:
    assert load_inline("torch.randn(3, requires_grad=True) * 2").wants_grad
    assert not load_inline("nn.Linear(3, 3)(torch.randn(3))").wants_grad


MODULE = """
class Net(nn.Module):
    def forward(self, x{default}):
        return x * 2
"""


@pytest.mark.parametrize(
    "text",
    [
        "example_inputs = (torch.randn(3),)\n" + MODULE.format(default=""),
        "def get_inputs():\n    return [torch.randn(3)]\n" + MODULE.format(default=""),
        MODULE.format(default="=torch.ones(3)"),
        MODULE.format(default="") + "    example_inputs = torch.ones(3)\n",
        MODULE.format(default="") + "Net()(torch.ones(3))",
    ],
)
def test_a_class_finds_its_inputs(text: str) -> None:
    source = load_inline(text)
    assert isinstance(source.callable, nn.Module)
    assert [tuple(a.shape) for a in source.args] == [(3,)]


def test_a_class_without_inputs_says_how() -> None:
    with pytest.raises(SourceError, match=r"Net needs values for x: call it"):
        load_inline(MODULE.format(default=""))


@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        ("", "the -c text is empty", None),
        ("torch.relu(\n", "syntax error: '(' was never closed", "-c line 1:  torch.relu("),
        ("x = 1\nx +* 2", "syntax error: invalid syntax", "-c line 2:  x +* 2\n"),
        ("y + 1", "NameError: name 'y' is not defined", "-c line 1:  y + 1"),
        ("torch.nosuch(torch.randn(3))(4)", "AttributeError: module 'torch'", "-c"),
        ("import os\nfor i in []: pass", "the last line must be an expression", "-c line 2:"),
        ("x = 1\n1/0 + torch.randn(3)\nx", "ZeroDivisionError", "-c line 2:  1/0 + torch.randn(3)"),
    ],
)  # fmt: skip
def test_bad_text_is_one_sentence(text: str, message: str, where: str | None) -> None:
    with pytest.raises(SourceError) as caught:
        load_inline(text)
    assert caught.value.message.startswith(message)
    assert where is None or (caught.value.where or "").startswith(where)


def test_the_caret_stands_under_the_mistake() -> None:
    with pytest.raises(SourceError) as caught:
        load_inline("torch.relu(torch.randn(3)))")
    first, line, caret = str(caught.value).splitlines()
    assert first == "syntax error: unmatched ')'"
    assert line[caret.index("^")] == ")" and caret.index("^") == len(line) - 1


def test_tracebacks_show_the_text() -> None:
    source = load_inline("torch.randn(2,3) @ torch.randn(2,3)")
    with pytest.raises(SourceError) as caught:
        run_eager(source)
    assert caught.value.where == "-c line 1:  torch.randn(2,3) @ torch.randn(2,3)"


def test_a_lambda_is_called_as_it_stands() -> None:
    function: Callable[..., torch.Tensor] = load_inline("(lambda t: t * 2)(torch.ones(2))").callable
    assert function(torch.ones(2)).tolist() == [2, 2]
