"""Each law fires, is exact, and needs its side condition; the graph itself keeps its promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.core.node import make
from weft.core.types import TensorType, f32, i64
from weft.scalar.ops import apply, axis, constant
from weft.search import masks
from weft.search.check import compare, is_polynomial, same
from weft.search.egraph import Conflict, EGraph, binds
from weft.search.elements import Element
from weft.search.extract import Extraction
from weft.search.laws import LAWS
from weft.search.saturate import Limits, saturate
from weft.search.writer import Expression
from weft.targets.cpu import CPUS
from weft.tensor.ops import Input, View, position

I, J, K, Q, R = (axis(n) for n in "ijkqr")  # noqa: E741
TENSORS = {n: make(Input(n, TensorType(f32, (4,) * 2))) for n in "abcd"}
ROWS = make(Input("rows", TensorType(i64, (4,))))
TARGET = CPUS["avx512"]
Build = Callable[[EGraph], int]


def graph() -> EGraph:
    return EGraph({I: 4, J: 5, K: 6, axis("k'"): 6, Q: 3, R: 3})


def at(g: EGraph, name: str, *index: object) -> int:
    return g.leaf(TENSORS[name], index)  # type: ignore[arg-type]


def product(g: EGraph) -> int:
    return g.sum({K}, g.mul((at(g, "a", I, K), at(g, "b", K, J))))


def masked(g: EGraph, relation: str, k: Any, at: Any, *factors: int) -> int:
    """sum_k [k ~ at] times the factors"""
    return g.sum({k}, g.mul((g.mask(apply(relation, k, at)), *factors)))


def picks(g: EGraph) -> int:
    """At an axis as long, at a shorter and a longer one, and at data that may be out of range."""
    row = make(Element(ROWS, 6), I), make(Element(ROWS), I)
    at_rows = [masked(g, "eq", K, r, at(g, "a", K, J)) for r in row]
    shifted = masked(g, "eq", K, apply("add", J, constant(3)), at(g, "b", K, K))
    return g.add((*at_rows, shifted, masked(g, "eq", I, K, at(g, "c", I), at(g, "d", K))))


def scans(g: EGraph) -> int:
    """Up to an axis, from it on, and beyond both ends."""
    far = apply("add", J, constant(3)), apply("subtract", J, constant(2))
    parts = [masked(g, r, K, t, at(g, "a", K, I)) for r in ("le", "ge") for t in (J, *far)]
    inner = {K, I}, g.mul((g.mask(apply("lt", K, J)), at(g, "a", K, I), at(g, "b", I, K)))
    return g.add((*parts, g.sum(*inner)))


X = make(Input("x", TensorType(f32, (5,))))
MOVED = apply("add", apply("add", position(0), position(1)), constant(-1))
INSIDE = apply("and", apply("ge", MOVED, constant(0)), apply("lt", MOVED, constant(5)))
PADDED = make(View((5, 3), (MOVED,), INSIDE), X)  # [j, r]: x[j + r - 1]


def over(g: EGraph, r: Any = R) -> int:
    """sum_r x[j + r - 1] a[i, r], with zeros beyond the borders of x"""
    return g.sum({r}, g.mul((g.leaf(PADDED, (J, r)), at(g, "a", I, r))))


def beside(g: EGraph) -> int:
    """At one position, at all by another name, at some, and at those of another axis."""
    shifted = g.mul((g.leaf(X, (J,)), at(g, "b", I)))
    third = g.mul((g.leaf(X, (J,)), g.sum({K}, at(g, "c", K))))
    return g.add((over(g), g.add((over(g, Q), shifted)), third, shifted))


# Beyond the last position, and where a name is another axis in both addends.
NOT_BESIDE: dict[str, Build] = {
    "beyond": lambda g: g.mul((g.leaf(X, (apply("add", J, constant(2)),)), at(g, "b", I))),
    "free": lambda g: g.mul((g.leaf(X, (J,)), at(g, "b", R))),
    "summed": lambda g: g.sum({R}, g.mul((g.leaf(X, (J,)), at(g, "c", R)))),
    "moved along": lambda g: g.sum({J}, g.mul((g.leaf(X, (J,)), at(g, "b", J)))),
    "captured": lambda g: g.sum({Q}, g.mul((g.leaf(PADDED, (J, Q)), g.sum({R}, at(g, "d", Q, R))))),
}


def not_beside(g: EGraph) -> int:
    return g.add(g.add((over(g), other(g))) for other in NOT_BESIDE.values())


HALF = apply("floordiv", K, constant(2))


# A term that each law is tried on, and one where its side condition does not hold, if it has one.
def power(g: EGraph, *at_: object) -> int:
    """A positive number."""
    return g.fn("exp", at(g, "a", *at_))


def log(g: EGraph, i: int) -> int:
    return g.fn("log", i)


def minus(g: EGraph, i: int) -> int:
    return g.mul((g.const(-1), i))


def farthest(kind: str) -> tuple[Build, Build]:
    """Of a sum with an addend that lacks the axis; and of one where all have it."""
    return (
        lambda g: g.fold(kind, {K}, g.add((at(g, "a", I), at(g, "b", K), at(g, "c", I, K)))),
        lambda g: g.fold(kind, {K}, g.add((at(g, "a", K), at(g, "b", K)))),
    )


def repeated(kind: str) -> tuple[Build, Build]:
    return lambda g: g.fold(kind, {K}, at(g, "a", I)), lambda g: g.fold(kind, {K}, at(g, "a", K))


EXAMPLES: dict[str, tuple[Build, Build | None]] = {
    "delta": (picks, lambda g: masked(g, "eq", K, HALF, at(g, "a", K, J))),
    "scan": (scans, lambda g: masked(g, "le", K, HALF, at(g, "a", K, J))),
    "at": (
        lambda g: g.at(K, J, g.mul((at(g, "a", K), g.sum({I}, at(g, "b", K, I))))),
        lambda g: g.at(K, I, g.sum({I}, at(g, "b", K, I))),
    ),
    "mul-flatten": (
        lambda g: g.mul((at(g, "a", I), g.mul((at(g, "b", I), at(g, "c", J))))), None,
    ),
    "add-flatten": (
        lambda g: g.add((at(g, "a", I), g.add((at(g, "b", I), at(g, "c", J))))), None,
    ),
    "sum-push": (
        lambda g: g.mul((at(g, "c", I), product(g))),
        lambda g: g.mul((at(g, "c", K), product(g))),
    ),
    "sum-rename": (
        lambda g: g.mul((at(g, "c", K), product(g))),
        lambda g: g.mul((at(g, "c", K), at(g, "d", axis("k'")), product(g))),
    ),
    "sum-merge": (
        lambda g: g.sum({J}, product(g)),
        lambda g: g.sum({K}, product(g)),
    ),
    "sum-split": (lambda g: g.sum({K}, g.add((at(g, "a", K), at(g, "b", I, K)))), None),
    "sum-absent": (
        lambda g: g.sum({J}, at(g, "a", I)),
        lambda g: g.sum({J}, at(g, "a", I, J)),
    ),
    "order": (
        lambda g: g.sum({K, J}, g.mul((at(g, "a", I, K), at(g, "b", K, J), at(g, "c", J)))),
        lambda g: g.sum({K, J}, g.mul((at(g, "a", I, K), at(g, "b", K), at(g, "c", K)))),
    ),
    "enlarge": (beside, not_beside),
    "distribute": (lambda g: g.mul((at(g, "a", I), g.add((at(g, "b", I), at(g, "c", J))))), None),
    "factor": (
        lambda g: g.add((product(g), g.sum({K}, g.mul((at(g, "a", I, K), at(g, "c", K, J)))))),
        lambda g: g.add(
            (
                g.sum({K}, g.mul((at(g, "a", K), at(g, "b", K)))),
                g.mul((at(g, "a", K), at(g, "c", I))),
            )
        ),
    ),
    "log-exp": (lambda g: log(g, power(g, I)), None),
    "log-product": (
        lambda g: log(g, g.mul((power(g, I), g.fn("reciprocal", g.sum({K}, power(g, K)))))),
        lambda g: log(g, g.mul((power(g, I), at(g, "b", J), at(g, "c", J)))),
    ),
    "log-reciprocal": (lambda g: log(g, g.fn("reciprocal", at(g, "a", I))), None),
    "exp-log": (
        lambda g: g.mul(
            g.fn("exp", e)
            for e in (
                g.add((at(g, "a", I), log(g, at(g, "b", J)))),
                g.add((at(g, "a", I), minus(g, log(g, at(g, "b", I))))),
                g.add((at(g, "a", I), minus(g, g.add((at(g, "b", J), log(g, at(g, "c", J))))))),
                log(g, at(g, "c", J)),
            )
        ),
        None,
    ),
    "max-pull": farthest("max"),
    "max-absent": repeated("max"),
    "min-pull": farthest("min"),
    "min-absent": repeated("min"),
}  # fmt: skip


def equal(x: Expression, y: Expression, g: EGraph) -> bool:
    """Modulo a prime; what has functions or maxima, in float64."""
    if is_polynomial((x, y)):
        return same([x], [y], g.extents)
    return not compare([x], [y], g.extents, f32).why.startswith("not equal")


def expression(g: EGraph, root: int) -> Expression:
    return Extraction(g, TARGET, (root,)).cheapest().expressions[0]


def test_every_law_has_an_example_and_a_proof() -> None:
    assert [law.name for law in LAWS] == [*EXAMPLES]
    assert all(law.proof for law in LAWS)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_fires_and_is_exact(law) -> None:  # type: ignore[no-untyped-def]
    g = graph()
    root = EXAMPLES[law.name][0](g)
    old, fired = expression(g, root), 0
    for term, _ in [*g.ids.items()]:
        for match in law.find(g, term) if term.kind == law.kind else ():
            if law.when(g, *match):
                right = law.make(g, *match)
                left = expression(g, g.ids[term])
                assert equal(left, expression(g, right), g)
                fired += 1
    assert fired
    saturate(g, LAWS, Limits())
    assert equal(old, expression(g, root), g)


@pytest.mark.parametrize("law", [w for w in LAWS if EXAMPLES[w.name][1]], ids=lambda law: law.name)
def test_the_checker_objects_without_the_side_condition(law) -> None:  # type: ignore[no-untyped-def]
    g = graph()
    build = EXAMPLES[law.name][1]
    assert build is not None
    build(g)
    wrong = 0
    for term, i in [*g.ids.items()]:
        for match in law.find(g, term) if term.kind == law.kind else ():
            if not law.when(g, *match):
                sides = expression(g, i), expression(g, law.make(g, *match))
                assert not equal(*sides, g)
                wrong += 1
    assert wrong


def test_all_terms_of_a_class_are_equal() -> None:
    """What saturation finds for a product with common factors, each term by itself."""
    g = graph()
    second = g.sum({K}, g.mul((at(g, "a", I, K), g.add((at(g, "c", K, J), at(g, "d", K))))))
    root = g.sum({J}, g.mul((at(g, "b", J), g.add((product(g), second)))))
    rounds = saturate(g, LAWS, Limits(nodes=400))
    assert rounds > 1 and len(g.ids) > 30
    whole = expression(g, root)
    memo = {i: expression(g, i) for i in g.terms}
    for i, terms in g.terms.items():
        for term in terms:
            if not g.free(*term.args) - binds(term) <= g.free(i):
                continue
            one = Expression(term.kind, term.data, tuple(memo[g.find(a)] for a in term.args))
            assert same([memo[i]], [one], g.extents), term
    assert whole.kind in ("sum", "mul", "add")


def test_equal_operands_make_equal_terms() -> None:
    g = graph()
    x, y = at(g, "a", I), at(g, "b", I)
    over = [g.mul((x, at(g, "c", J))), g.mul((y, at(g, "c", J)))]
    assert g.find(over[0]) != g.find(over[1])
    g.union(x, y, "given", next(iter(g.ids)))
    g.rebuild()
    assert g.find(over[0]) == g.find(over[1])


def test_constants_that_differ_are_a_conflict() -> None:
    g = graph()
    with pytest.raises(Conflict):
        g.union(g.const(1), g.const(2), "wrong", next(iter(g.ids)))


def test_limits_end_a_search() -> None:
    g = graph()
    factors = [g.add((at(g, n, I), at(g, n, J))) for n in "abcd"]
    g.mul(factors)
    saturate(g, LAWS, Limits(nodes=100))
    assert len(g.ids) <= 130


def test_a_search_ends_by_work_and_never_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(limits: Limits) -> tuple[int, list[Any]]:
        g = graph()
        second = g.sum({K}, g.mul((at(g, "a", I, K), g.add((at(g, "c", K, J), at(g, "d", K))))))
        g.sum({J}, g.mul((at(g, "b", J), g.add((product(g), second)))))
        saturate(g, LAWS, limits)
        return len(g.ids), [*g.unions]

    size, unions = found(Limits())
    monkeypatch.setattr("time.perf_counter", iter(range(0, 1 << 40, 3600)).__next__)
    assert found(Limits()) == (size, unions)
    few = found(Limits(applied=5))
    assert few[0] < size and sum(law != "congruence" for law, *_ in few[1]) <= 5


@pytest.mark.parametrize("build", [picks, scans], ids=lambda f: f.__name__)
def test_a_position_is_looked_up_in_range_alone(build: Build, monkeypatch: Any) -> None:
    """Without that, axes of 4 positions are read at the sixth: the checker objects."""
    monkeypatch.setattr(masks, "_is_inside", lambda *_: True)
    g = graph()
    build(g)
    verdicts: list[bool] = []
    for law in masks.MASKED[:2]:
        for term, i in [*g.ids.items()]:
            for match in law.find(g, term) if term.kind == law.kind else ():
                sides = expression(g, i), expression(g, law.make(g, *match))
                verdicts.append(same([sides[0]], [sides[1]], g.extents))
    assert True in verdicts and False in verdicts


@pytest.mark.parametrize("name", NOT_BESIDE)
def test_each_condition_on_joined_reads_declines(name: str) -> None:
    (law,) = (law for law in LAWS if law.name == "enlarge")
    g = graph()
    g.add((over(g), NOT_BESIDE[name](g)))
    (term,) = (t for t in g.ids if t.kind == "add")
    matches = [m for m in law.find(g, term) if m[1].axes == {R}]
    assert matches and not any(law.when(g, *m) for m in matches)
