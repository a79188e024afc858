"""The matcher and the fixpoint on hand-made rules, and the log that passes run under."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from tests.rules.terms import normal
from weft.core.errors import WeftError
from weft.core.node import Node
from weft.core.passes import PassLog
from weft.core.rules import Rule, RuleSet, call, match, wildcards
from weft.scalar.ops import apply, axis, constant
from weft.scalar.rules import VOCABULARY

x, y = wildcards("x y")
(a,) = wildcards("a", literal=True)
A, B, C = axis("a"), axis("b"), axis("c")


def add(*args: Node) -> Node:
    return apply("add", *args)


def multiply(*args: Node) -> Node:
    return apply("multiply", *args)


def test_commutative_arguments_match_in_both_orders() -> None:
    (found,) = match(x + 1, add(constant(1), A), {})
    assert found == {"x": A}


def test_matching_backtracks_over_the_orders() -> None:
    """x * a + x * b fits only when x is bound to what both products share."""
    term = add(multiply(A, B), multiply(C, A))
    z = wildcards("z")[0]
    assert {"x": A, "y": B, "z": C} in list(match(x * y + x * z, term, {}))


def test_a_repeated_wildcard_is_one_node() -> None:
    assert not list(match(x + x, add(A, B), {}))
    assert list(match(x + x, add(A, A), {})) == [{"x": A}]


def test_literals_and_constants() -> None:
    assert not list(match(x + 0.0, add(apply("f32", A), constant(-0.0)), {}))
    assert list(match(x * a, multiply(A, constant(3)), {}))
    assert not list(match(x * a, multiply(A, B), {}))


def test_open_calls() -> None:
    (found,) = match(call("add", call("multiply"), x), add(multiply(A, B), C), {})
    assert found == {"x": C}


def test_rules_run_to_a_fixpoint_and_are_counted() -> None:
    rules = RuleSet(VOCABULARY, [Rule("twice", call("negate", -x), x), Rule("one", x * 1, x)])
    term = A
    for _ in range(6):
        term = apply("negate", multiply(term, constant(1)))
    trace: Counter[str] = Counter()
    assert normal(rules, term, trace) is A
    assert trace == {"twice": 1, "one": 2}  # an interned term is rewritten once


def test_what_a_rule_makes_is_rewritten_too() -> None:
    rules = RuleSet(VOCABULARY, [Rule("grow", x - y, (x * 1) + (y * 1)), Rule("one", x * 1, x)])
    assert normal(rules, apply("subtract", A, B)) is add(A, B)


def test_none_declines_and_the_next_rule_is_tried() -> None:
    def never(x: Node) -> None:
        return None

    rules = RuleSet(VOCABULARY, [Rule("never", x + 0, never), Rule("zero", x + 0, x)])
    assert normal(rules, add(A, constant(0))) is A


def test_rules_that_loop_end() -> None:
    rules = RuleSet(VOCABULARY, [Rule("swap", x - y, y - x)])
    out = normal(rules, apply("subtract", A, B))
    assert set(out.args) == {A, B}


def test_a_name_stands_for_one_rule() -> None:
    with pytest.raises(WeftError, match="two rules are called zero"):
        RuleSet(VOCABULARY, [Rule("zero", x + 0, x), Rule("zero", x - 0, x)])


def test_a_rule_must_keep_the_dtype() -> None:
    rules = RuleSet(VOCABULARY, [Rule("bad", call("eq", x, x), x)])
    with pytest.raises(WeftError, match="rule bad turns bool into i64"):
        normal(rules, apply("eq", A, A))


def test_the_log_prints_a_diff_per_pass() -> None:
    out = io.StringIO()
    log = PassLog(verbose=2, out=out)
    assert log.run("t", "007_stage_inputs", lambda p: p + "c\n", "a\nb\n", str) == "a\nb\nc\n"
    log.run("t", "008_register_tile", lambda p: p, "a\n", str)
    text = out.getvalue()
    assert ">>> t:007_stage_inputs\n@@ -1,2 +1,3 @@\n a\n b\n+c\n<<< t:007_stage_inputs\n" in text
    assert ">>> t:008_register_tile" not in text and "no change" in text
    assert log.seconds.keys() == {"t"}


def test_the_log_names_the_rules_that_fired() -> None:
    out = io.StringIO()
    log = PassLog(verbose=1, out=out)
    rules = RuleSet(VOCABULARY, [Rule("one", x * 1, x)])
    one = multiply(A, constant(1))
    log.run("n", "001_simplify", lambda t: normal(rules, t, log.fired), one, repr)
    assert "one x1" in out.getvalue() and ">>>" not in out.getvalue()


def test_a_quiet_log_prints_nothing() -> None:
    out = io.StringIO()
    PassLog(out=out).run("t", "001_tileify", str.upper, "a", str)
    assert not out.getvalue()
