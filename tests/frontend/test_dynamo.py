"""torch.compile with the back end of the front end: graphs, breaks, dynamic shapes, options."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.frontend_programs import Interpreter, interpret
from weft.calling import compiled
from weft.core.errors import UnsupportedOpError
from weft.frontend.assumptions import Assumptions
from weft.frontend.autograd import graph_backend
from weft.frontend.capture import Name
from weft.frontend.python import names_of
from weft.frontend.specialise import Session


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def recording():
    back_end = Interpreter()
    return back_end.captured, graph_backend(back_end.session())


def test_graph_break_makes_two_programs():
    programs, backend = recording()

    def f(x):
        y = x + 1
        if y.sum() > 0:
            return y * 2
        return y - 1

    g = torch.compile(f, backend=backend)
    for x in (torch.ones(3), -2 * torch.ones(3)):
        torch.testing.assert_close(g(x), f(x))
    assert len(programs) == 3


def test_inputs_are_called_as_in_python():
    seen = []

    def backend(graph, _):
        seen.append(set(names_of(graph)))
        return graph.forward

    def scaled(x, *more, by):
        return linear(x) + more[1] * by["some"]

    linear, x = torch.nn.Linear(3, 3), torch.ones(3)
    torch.compile(scaled, backend=backend)(x, 1, x + 1, by={"some": x + 2})
    weights = {Name("linear.weight", True), Name("linear.bias", True)}
    assert seen == [{Name("x"), Name("more.1"), Name("by.some")} | weights]


def test_dynamic_shapes_are_specialised():
    programs, backend = recording()
    g = torch.compile(lambda x: (x * x.shape[0]).sum(0), backend=backend, dynamic=True)
    for n in (2, 5, 2, 7):
        torch.testing.assert_close(g(torch.ones(n, 3)), torch.full((3,), float(n * n)))
    assert len(programs) == 3


def test_signatures_in_turn_take_the_fast_check(monkeypatch):
    programs, backend = recording()
    g = torch.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)
    inputs = [torch.ones(n, 3) for n in (2, 5, 7)]
    for x in inputs:
        g(x)
    slow = []
    of = Assumptions.of
    monkeypatch.setattr(Assumptions, "of", lambda given: slow.append(given) or of(given))
    for x in inputs * 2:
        torch.testing.assert_close(g(x), x * x.shape[0])
    assert len(programs) == 3 and slow == []


def test_source_lines_come_from_the_program():
    programs, backend = recording()
    torch.compile(lambda x: torch.sin(x) + 1, backend=backend)(torch.ones(2))
    (where, *_) = programs[0].graph.origin.values()
    assert "torch.sin(x) + 1" in where
    assert where.startswith("test_dynamo.py line ")


def test_mutations_reach_the_caller():
    def f(x, y):
        x[0].add_(y)
        return x * 2

    g = torch.compile(f, backend=graph_backend(interpret.session()))
    x, want = torch.zeros(2, 3), torch.zeros(2, 3)
    torch.testing.assert_close(g(x, torch.ones(3)), f(want, torch.ones(3)))
    torch.testing.assert_close(x, want)


@pytest.mark.parametrize("through", ["direct", "dynamo"])
def test_an_unsupported_op_is_weft_s_error(through):
    class Refusing(Interpreter):
        def session(self, title="graph"):
            return Session(self, strict=True, title=title)

        def __call__(self, captured):
            ((node, where),) = captured.graph.origin.items()
            raise UnsupportedOpError(f"{node.op.target} has no lowering", where)

    def f(x):
        return x.cos()

    g = (
        compiled(f, Refusing())
        if through == "direct"
        else torch.compile(f, backend=graph_backend(Refusing().session()))
    )
    with pytest.raises(UnsupportedOpError, match=r"aten.cos.*\n.*test_dynamo.py line .*x.cos"):
        g(torch.ones(2))


def test_entry_point():
    dynamo = pytest.importorskip("weft.dynamo", exc_type=ImportError)
    assert callable(dynamo.weft_backend)
    assert "weft" in torch._dynamo.list_backends()
    g = torch.compile(torch.sin, backend="weft", options={"target": "cpu", "fallback": "aten"})
    torch.testing.assert_close(g(torch.ones(2)), torch.ones(2).sin())
