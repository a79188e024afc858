"""`-c TEXT`: runs the statements; the last expression is the program, and its tensors the inputs.

load_inline("torch.relu(torch.randn(4) + torch.randn(4))")   # relu(x + y) of two inputs
load_inline("torch.nn.RMSNorm(8)(torch.randn(2, 8))")        # the module, called with one input
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from weft.cli.program import Source, from_object, user_code
from weft.core.errors import SourceError

FILE = "-c"

FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "arange empty eye full linspace logspace normal ones rand randint randn randperm tensor "
        "zeros"
    ).split()
)
# Methods that help to create an input: torch.randn(8).half() is one f16 input.
CONVERSIONS = frozenset(
    "bfloat16 bool contiguous cpu cuda double float half int long requires_grad_ to".split()
)
# Names of inputs that are the right operand of an operator: x @ w, x + bias.
HINTS: dict[type[ast.operator], str] = {ast.MatMult: "w", ast.Add: "bias"}
RANKS = {"w": 2, "bias": 1}


def load_inline(text: str) -> Source:
    """The program that `-c` text describes."""
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    tree = parse(text)
    if not tree.body:
        raise SourceError(
            "the -c text is empty: it needs an expression, such as torch.randn(4) + 1"
        )
    *statements, last = tree.body
    namespace = new_module()
    with user_code(FILE, text):
        run(statements, namespace)
        if isinstance(last, ast.Expr | ast.Assign | ast.AnnAssign) and last.value is not None:
            return program(last.value, namespace)
        if isinstance(last, ast.ClassDef | ast.FunctionDef):
            run([last], namespace)
            return from_object(namespace[last.name], namespace, last.name)
    line = text.splitlines()[last.lineno - 1].strip()
    raise SourceError("the last line must be an expression", f"{FILE} line {last.lineno}:  {line}")


def new_module() -> dict[str, Any]:
    """The globals of a new module: Dynamo looks up a function's globals by its module."""
    module = types.ModuleType(f"weft_text_{next(NUMBER)}")
    sys.modules[module.__name__] = module
    vars(module).update(torch=torch, nn=nn, F=F, math=math)
    return vars(module)


NUMBER = itertools.count()


def parse(text: str) -> ast.Module:
    try:
        return ast.parse(text, FILE)
    except SyntaxError as error:
        number, column = error.lineno or 1, error.offset or 1
        lines = text.splitlines() or [""]
        line = lines[min(number, len(lines)) - 1]
        prefix = f"{FILE} line {number}:  "
        caret = " " * (len("  at ") + len(prefix) + column - 1) + "^"
        raise SourceError(f"syntax error: {error.msg}", f"{prefix}{line}\n{caret}") from None


def run(statements: list[ast.stmt], namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module(statements, []), FILE, "exec"), namespace)


def evaluate(node: ast.expr, namespace: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), FILE, "eval"), namespace)


def program(expression: ast.expr, namespace: dict[str, Any]) -> Source:
    """The expression as a program: a function of its inputs, or a module."""
    title = ast.unparse(expression)
    found = Inputs(expression, namespace)
    if not found.reads_input(expression):
        value = evaluate(expression, namespace)
        if callable(value):
            return from_object(value, namespace, title)
    rewritten = found.visit(expression)
    call = module_call(rewritten, found)
    if call is not None:
        return Source(*call, title)
    return Source(build(rewritten, found, expression), tuple(found.inputs.values()), {}, title)


def module_call(
    node: ast.expr, found: Inputs
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None:
    """The module and its arguments, if the program is only a call of a module; else None."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    owner = node.func.value
    if not (isinstance(owner, ast.Name) and owner.id == "self"):
        return None
    operands = [*node.args, *(k.value for k in node.keywords)]
    inputs = found.inputs
    plain = (is_literal(o) or (isinstance(o, ast.Name) and o.id in inputs) for o in operands)
    if not all(plain) or any(k.arg is None for k in node.keywords):
        return None
    module = found.members[node.func.attr]
    assert isinstance(module, nn.Module)
    values = {**found.namespace, **found.inputs}
    return (
        module.eval(),
        tuple(evaluate(a, values) for a in node.args),
        {k.arg: evaluate(k.value, values) for k in node.keywords if k.arg is not None},
    )


def is_literal(node: ast.expr) -> bool:
    return not any(isinstance(n, ast.Name | ast.Call | ast.Starred) for n in ast.walk(node))


def build(expression: ast.expr, found: Inputs, original: ast.expr) -> Any:
    """A function of the inputs; if there are members, a module that owns them."""
    parameters = [*(["self"] if found.members else []), *found.inputs]
    function = ast.parse(f"lambda {', '.join(parameters)}: None", mode="eval").body
    assert isinstance(function, ast.Lambda)
    function.body = expression
    ast.increment_lineno(function.args, original.lineno - 1)
    forward = evaluate(ast.copy_location(function, original), found.namespace)
    forward.__name__ = "forward"
    if not found.members:
        return forward
    module = type("Program", (nn.Module,), {"forward": forward})()
    for name, member in found.members.items():
        setattr(module, name, member)
    return module.eval()


class Inputs(ast.NodeTransformer):
    """Rewrites an expression so that only what depends on its inputs is left to trace.

    A factory call, or a name that the statements bound to a tensor, becomes an argument. A module
    or nn.Parameter becomes a member of the program. Any other call that reads no input is
    evaluated once.
    """

    def __init__(self, root: ast.expr, namespace: dict[str, Any]) -> None:
        self.root = root
        self.namespace = namespace
        self.inputs: dict[str, Any] = {}
        self.members: dict[str, nn.Module | nn.Parameter] = {}
        self.hints: dict[ast.expr, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.namespace.get(node.id)
        if is_input(value):
            self.inputs[node.id] = value
        if isinstance(value, nn.Module | nn.Parameter):
            return self.member(node.id, value, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if node is not self.root and self.makes_input(node):
            return self.input(node)
        if node is not self.root and not self.reads_input(node):
            return self.constant(node)
        if isinstance(node.func, ast.Call) and not self.makes_input(node.func):
            node.func = self.constant(node.func)  # nn.Linear(8, 8)(...): made once, not traced
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        hint = HINTS.get(type(node.op))
        if hint is not None:
            self.hints[node.right] = hint
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg is not None:
            self.hints[node.value] = node.arg
        self.generic_visit(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node  # its names may be parameters

    def visit_comprehension_value(self, node: ast.expr) -> ast.expr:
        """Makes [torch.randn(4) for _ in range(3)] one input: a list of tensors."""
        return self.input(node) if self.reads_input(node) else self.constant(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_comprehension_value
    visit_GeneratorExp = visit_comprehension_value

    def reads_input(self, node: ast.expr) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and is_input(self.namespace.get(inner.id)):
                return True
            if inner is not self.root and isinstance(inner, ast.Call) and self.is_factory(inner):
                return True
        return False

    def makes_input(self, node: ast.expr) -> bool:
        """Whether a node is a call of a factory, or of dtype and device conversions on one."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in CONVERSIONS:
            return self.makes_input(node.func.value)
        return self.is_factory(node)

    def is_factory(self, node: ast.Call) -> bool:
        parts = (n for n in ast.walk(node.func) if isinstance(n, ast.expr))
        if not all(isinstance(part, ast.Name | ast.Attribute) for part in parts):
            return False
        try:
            value = evaluate(node.func, self.namespace)
        except (NameError, AttributeError):
            return False  # reported where the expression itself runs
        return getattr(value, "__hash__", None) is not None and value in FACTORIES

    def input(self, node: ast.expr) -> ast.expr:
        value = evaluate(node, self.namespace)
        name = next(n for n in self.names(node, value) if self.is_free(n))
        self.inputs[name] = value
        return self.name(name, node)

    def constant(self, node: ast.expr) -> ast.expr:
        value = evaluate(node, self.namespace)
        if isinstance(value, nn.Module):
            return self.member(type(value).__name__.lower(), value, node)
        name = f"_constant{sum(n.startswith('_constant') for n in self.namespace)}"
        self.namespace[name] = value
        return self.name(name, node)

    def member(self, name: str, value: nn.Module | nn.Parameter, node: ast.expr) -> ast.expr:
        known = [n for n, member in self.members.items() if member is value]
        numbered = (f"{name}{i or ''}" for i in range(len(self.members) + 1))
        attribute = known[0] if known else next(n for n in numbered if n not in self.members)
        self.members[attribute] = value
        owner = ast.copy_location(ast.Name("self", ast.Load()), node)
        return ast.copy_location(ast.Attribute(owner, attribute, ast.Load()), node)

    def name(self, name: str, node: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def names(self, node: ast.expr, value: Any) -> Iterator[str]:
        """Names for an input, best first: its keyword, w or bias by its operator, x y z x3 ..."""
        hint = self.hints.get(node)
        rank = value.dim() if isinstance(value, torch.Tensor) else None
        if hint is not None and RANKS.get(hint, rank) == rank:
            yield from (f"{hint}{i or ''}" for i in range(len(self.inputs) + 2))
        yield from "xyz"
        yield from (f"x{i}" for i in range(3, 10**6))

    def is_free(self, name: str) -> bool:
        return name not in self.inputs and name not in self.namespace and name != "self"


def is_input(value: Any) -> bool:
    """Whether a value is an input: a tensor, but no parameter, which stays in its module."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
