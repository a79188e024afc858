"""Every small program gives what eager gives: values, dtypes, strides, aliasing, side effects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten

from tests.frontend.frontend_programs import CASES, interpret, native
from weft.calling import compiled


def sharing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor the first one in the same storage and its distance to that one."""
    storages = [t.untyped_storage()._cdata for t in tensors]
    firsts = [storages.index(s) for s in storages]
    return [
        (i, t.storage_offset() - tensors[i].storage_offset())
        for i, t in zip(firsts, tensors, strict=True)
    ]


def assert_same(got: Any, want: Any, args: Any, reference: Any) -> None:
    (got_flat, got_tree), (want_flat, want_tree) = tree_flatten(got), tree_flatten(want)
    assert got_tree == want_tree
    tensors: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for g, w in zip([*args, *got_flat], [*reference, *want_flat], strict=True):
        if not isinstance(w, torch.Tensor):
            assert isinstance(w, (dict, list)) or (type(g) is type(w) and g == w)
            continue
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        assert g.requires_grad == w.requires_grad
        torch.testing.assert_close(g, w, equal_nan=True)
        tensors[0].append(g)
        tensors[1].append(w)
    assert sharing(tensors[0]) == sharing(tensors[1])
    assert [g is args[0] for g in got_flat] == [w is reference[0] for w in want_flat]


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_as_eager(case, gradients):
    with torch.set_grad_enabled(gradients):
        torch.manual_seed(0)
        fn, args = case.make()
        reference_fn = copy.deepcopy(fn)
        f = compiled(fn, native)
        for _ in range(3):  # the first call captures, later ones take the guarded path
            arguments = copy.deepcopy(args)
            reference = copy.deepcopy(args)
            want = reference_fn(*reference)
            assert_same(f(*arguments), want, arguments, reference)
        if isinstance(fn, torch.nn.Module):
            torch.testing.assert_close(f.state_dict(), reference_fn.state_dict())


def test_one_entry_for_one_signature():
    f = compiled(lambda x, n: x * n, interpret)
    for shape in [(2, 3), (4,), (2, 3)]:
        for n in (1, 2.0, 2.0):
            torch.testing.assert_close(f(torch.ones(shape), n), torch.ones(shape) * n)
    assert len(f.programs) == 4


def test_written_inputs_that_start_to_overlap():
    def f(a, b):
        a.add_(1)
        return a + b

    g = compiled(f, interpret)
    x = torch.zeros(4)
    for _ in range(2):
        torch.testing.assert_close(g(torch.zeros(4), torch.zeros(4)), torch.ones(4))
        x.zero_()
        torch.testing.assert_close(g(x, x), torch.full((4,), 2.0))


def test_decorator_on_functions_and_methods():
    def decorate(fn):
        return compiled(fn, interpret)

    @decorate
    def double(x, *, by=2):
        """Doubles."""
        return x * by

    class Scale:
        def __init__(self, by):
            self.by = by

        @decorate
        def scale(self, x):
            return x * self.by

    assert double.__name__ == "double" and double.__doc__ == "Doubles."
    one = torch.ones(2)
    assert double(one, by=3).sum() == 6 and double(one).sum() == 4
    assert Scale(2).scale(one).sum() == 4 and Scale(5).scale(one).sum() == 10


def test_a_compiled_module_is_the_module():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    f = compiled(module, interpret)
    assert isinstance(f, torch.nn.Module)
    assert [n for n, _ in f.named_parameters()] == [n for n, _ in module.named_parameters()]
    assert f.eval() is f and not module.training and not f.training
    x = torch.ones(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(f(x), module(x))
        f.train()
        torch.manual_seed(1)
        got = f(x)
        torch.manual_seed(1)
        torch.testing.assert_close(got, module(x))
        f.eval()
        f.load_state_dict({k: v + 1 for k, v in module.state_dict().items()})
        torch.testing.assert_close(f(x), module(x))
        module[0] = torch.nn.Linear(3, 5)
        torch.testing.assert_close(f(x), module(x))
        module[0].weight = torch.nn.Parameter(torch.ones(5, 3))
        torch.testing.assert_close(f(x), module(x))
        f.double()
        torch.testing.assert_close(f(x.double()), module(x.double()))
    outer = torch.nn.Sequential(f)
    assert len(outer.state_dict()) == 2
    torch.testing.assert_close(copy.deepcopy(outer)(x.double()), module(x.double()))


class Chatty(torch.nn.Module):
    """Methods that call the module, as `generate` of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x).relu()

    def twice(self, x):
        return type(self).again(self, self(x))

    def again(self, x):
        self.last = x
        return self(x)

    def named(self, x):
        return super().__class__.__name__, self(x)


def test_a_module_s_methods_call_the_compiled_one():
    m, x = Chatty(), torch.randn(2, 3)
    f = compiled(m, interpret)
    with torch.no_grad():
        torch.testing.assert_close(f.twice(x), m.twice(x))
        assert len(f.programs) == 1 and m.last is f.last
        name, out = f.named(x)  # super() asks for an instance of the class: it stays the module
        assert name == m.named(x)[0] and len(f.programs) == 1
        torch.testing.assert_close(out, m(x))
        m.again = lambda x: x + 1  # an instance's own goes first, as in eager
        torch.testing.assert_close(f.again(x), x + 1)
    with pytest.raises(AttributeError, match="no attribute 'thrice'"):
        _ = f.thrice
    with pytest.raises(AttributeError, match="no attribute 'thrice'"):
        _ = type(f).thrice


def test_why_a_graph_ends_early_is_kept():
    f = compiled(lambda x: x * 2 if x.sum() > 0 else x, interpret)
    f(torch.ones(2))
    (reason,) = f.reasons
    assert reason.startswith("Data-dependent branching at test_calling.py line")
    assert "x.sum() > 0" in reason


def test_an_error_of_the_program_is_the_error_of_eager():
    f = compiled(lambda x: x @ x, interpret)
    with pytest.raises(RuntimeError):
        f(torch.ones(2, 3))
