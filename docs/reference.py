"""The reference pages of the site, written from weft's own tables, signatures and docstrings.

write(Path("docs/reference"))       # ops.md, functions.md, rules.md, passes.md, ... (conf.py)
python docs/reference.py ops        # prints one of them
A page is a function of PAGES; nothing on it is said here that the code says.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import typer

import weft
from weft import levels
from weft.cli.main import app
from weft.core.node import OPS
from weft.core.passes import PassLog
from weft.core.rules import Call, Literal, Pattern, Rule, Wildcard
from weft.emit.languages import LANGUAGES
from weft.emit.spelling import RENAMED
from weft.frontend.aten.rows import LOWER
from weft.frontend.graph import KNOWN
from weft.kernel import ops as kernel_ops
from weft.loop import ops as loop_ops
from weft.options import Options
from weft.scalar import nest
from weft.scalar import ops as scalar_ops
from weft.targets.cpu import CPU, CPUS
from weft.targets.gpu import GPU, GPUS
from weft.tensor import ops as tensor_ops
from weft.tensor import rules as tensor_rules
from weft.tile import ops as tile_ops
from weft.tile import schedule
from weft.tile.moves.script import MOVES

# Where the ops and statements of a level are declared: modules of these folders of weft.
DECLARED = {"torch": "frontend", "tensor": "tensor", "kernel": "kernel"}


def prose(text: str) -> str:
    """Text for Markdown: what is in backticks as it is, all that means something else escaped."""
    return re.sub(r"(`[^`\n]+`)|([\\`*_{}\[\]<>|~$#])", lambda m: m[1] or f"\\{m[2]}", text)


def is_prose(text: str) -> bool:
    """Whether a part of a docstring is sentences: nothing is laid out, no line is code."""
    return not re.search(r"^ |\S  +\S| = | -> |[^\s`]\(|[{}]", text, re.MULTILINE)


def paragraphs(text: str | None) -> str:
    """A docstring: its first sentences as prose; from what is code or laid out on, as it is."""
    first, *rest = inspect.cleandoc(text or "").split("\n\n")
    shown = [first]
    while rest and is_prose(rest[0]):
        shown.append(rest.pop(0))
    laid = "\n\n".join(rest)
    return "".join(f"{prose(part)}\n\n" for part in shown) + (
        f"```\n{laid}\n```\n\n" if laid else ""
    )


def code(text: object) -> str:
    """Inline code, also in a table."""
    shown = " ".join(str(text).split()).replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`" if shown else ""


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n\n"


def annotation(kind: Any) -> str:
    """A type without the modules that its names are of."""
    shown = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"(\w+\.)+(?=\w)", "", shown)


def parameter(name: str, kind: Any, default: Any) -> str:
    given = "" if default in (MISSING, inspect.Parameter.empty) else f" = {default!r}"
    return f"{name}{f': {annotation(kind)}' if kind else ''}{given}"


def spelt(kind: type) -> str:
    """The fields of a dataclass as its signature has them."""
    return ", ".join(parameter(f.name, f.type, f.default) for f in fields(kind))


def comments(kind: type) -> dict[str, str]:
    """What is said beside the fields of a dataclass, and of those that it extends."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__[:-1]):
        found |= re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(cls), re.MULTILINE)
    return found


# ---- ops


def operands(op: type) -> str:
    """What an op applies to: the parameters of its `infer`, which has their types."""
    parameters = inspect.signature(op.infer).parameters.values()  # type: ignore[attr-defined]
    shown = [str(p).partition(":")[0] for p in parameters if p.name not in ("self", "_")]
    return ", ".join(shown)


def op_entry(op: type) -> str:
    attributes = spelt(op)
    head = f"{op.name}{{{attributes}}}({operands(op)})"  # type: ignore[attr-defined]
    doc = op.__doc__ if not (op.__doc__ or "").startswith(f"{op.__name__}(") else ""
    return f"### {op.name}\n\n```\n{head}\n```\n\n{paragraphs(doc)}"  # type: ignore[attr-defined]


def statement_entry(kind: type) -> str:
    return f"### {kind.__name__}\n\n```\n{kind.__name__}({spelt(kind)})\n```\n\n" + paragraphs(
        kind.__doc__
    )


def declared(kinds: Iterable[type], folder: str) -> list[type]:
    return [k for k in kinds if k.__module__.startswith(f"weft.{folder}.")]


def ops_page() -> str:
    """Ops by level, as they are registered."""
    statements = nest.Stmt.__subclasses__()
    modules = {"tensor": tensor_ops, "kernel": kernel_ops}
    parts = ["# Ops of each level\n\nAn op is written `name{attributes}(operands)`.\n\n"]
    for level, folder in DECLARED.items():
        if level == "kernel":
            for name, module in (("loop", loop_ops), ("tile", tile_ops)):
                parts.append(f"## {name}\n\n{paragraphs(module.__doc__)}")
            parts += ["## Terms\n\n", paragraphs(scalar_ops.__doc__)]
            parts += map(op_entry, declared(OPS.values(), "scalar"))
            parts += ["## Statements\n\n", paragraphs(nest.__doc__)]
            parts += map(statement_entry, declared(statements, "scalar"))
        told = modules[level].__doc__ if level in modules else levels.torch_level.__doc__
        parts += [f"## {level}\n\n", paragraphs(told)]
        parts += map(op_entry, declared(OPS.values(), folder))
        parts += map(statement_entry, declared(statements, folder))
    names = ", ".join(code(name) for name in sorted(LOWER))
    return "".join(parts) + f"## ATen ops with a row\n\n{len(LOWER)} overloads: {names}\n"


def functions_page() -> str:
    """Scalar functions: what `map` and `apply` take."""
    rows = (
        (
            code(f.name),
            str(f.arity),
            code(f.result),
            ", ".join(f.domain),
            "yes" if f.commutative else "",
            f"{f.cost:g}",
            code(RENAMED.get(f.name, f.name)),
        )
        for f in scalar_ops.FUNCTIONS.values()
    )
    head = ("function", "operands", "result", "dtypes", "commutative", "cost", "in C")
    return f"# Scalar functions\n\n{paragraphs(scalar_ops.Function.__doc__)}" + table(head, rows)


# ---- rules


@cache
def lambdas(path: str) -> list[ast.Lambda]:
    tree = ast.parse(Path(path).read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]


def body_of(function: Any) -> str:
    """What a lambda computes, in Python; of a function that has a name its name."""
    named = {id(value): name for name, value in function.__globals__.items()}
    if id(function) in named or function.__name__ != "<lambda>":
        return named.get(id(function), function.__qualname__.partition(".<locals>")[0])
    line, path = function.__code__.co_firstlineno, function.__code__.co_filename
    (found,) = (node for node in lambdas(path) if node.lineno == line)
    return ast.unparse(found.body)


def term(form: object) -> str:
    """A pattern as dumps have terms: add(x, 0)."""
    if isinstance(form, Wildcard):
        return form.name
    if isinstance(form, Literal):
        return repr(form.value)
    if isinstance(form, Call):
        return f"{form.head}({', '.join(map(term, form.args)) or '...'})"
    return repr(form)


def rule_row(rule: Rule) -> tuple[str, str, str, str, str]:
    made = rule.replacement
    if isinstance(made, Pattern | int | float):
        becomes = code(term(made))
    else:
        doc = inspect.getdoc(made) or ""
        first = doc.partition("\n")[0]
        becomes = code(first) if "->" in first else prose(first) or f"as {code(body_of(made))} does"
    when = "" if rule.when is None else code(body_of(rule.when))
    return code(rule.name), code(term(rule.pattern)), becomes, when, rule.soundness


def conditions(rules: Iterable[Rule]) -> str:
    """The statements that name conditions of rules."""
    named = {body_of(rule.when): rule.when for rule in rules if rule.when is not None}
    shown: list[str] = []
    for path in sorted({when.__code__.co_filename for when in named.values()}):
        for node in ast.parse(Path(path).read_text()).body:
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            given = {n.id for n in names if isinstance(n.ctx, ast.Store)}
            if isinstance(node, ast.Assign) and given & named.keys():
                shown.append(ast.unparse(node))
    return "Conditions:\n\n```\n" + "\n".join(shown) + "\n```\n\n"


def rules_page() -> str:
    """The rules of the tensor level, in the order in which they are tried."""
    head = ("rule", "a node like this", "becomes", "where", "soundness")
    rules = tensor_rules.RULES.rules
    told = paragraphs(tensor_rules.__doc__) + paragraphs(Rule.__doc__) + conditions(rules)
    return f"# Rules of tensors\n\n{told}" + table(head, map(rule_row, rules))


# ---- passes and moves


@cache
def imported_from() -> dict[str, str]:
    """The modules from which levels.py has its names."""
    nodes = ast.walk(ast.parse(inspect.getsource(levels)))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in froms for alias in node.names}


def pass_entry(name: str, module: str) -> str:
    text = inspect.cleandoc(import_module(module).__doc__ or "")
    told = text.removeprefix(f"{name[4:]}: ").removeprefix(f"{name[4:].replace('_', ' ')}: ")
    return f"### {name}\n\n{code(module)}: {paragraphs(told)}"


def passes_page() -> str:
    """All passes by target, with what their modules say."""
    most = (PassLog(), Options(), KNOWN)
    on_tensors = levels.steps_on_tensors("torch", CPUS["avx512_bf16"], None, None, *most)  # type: ignore[arg-type]
    parts = [f"# Passes\n\n{paragraphs(schedule.__doc__)}"]
    parts += ["## Of tensors\n\n", *(pass_entry(n, imported_from()[n[4:]]) for n, _ in on_tensors)]
    lists = {
        "Of programs, on a CPU": schedule.CPU_PROGRAM,
        "Of kernels, on a CPU": schedule.CPU_SCHEDULE,
        "Of programs, on a GPU": schedule.GPU_PROGRAM,
        "Of kernels, on a GPU": schedule.GPU_SCHEDULE,
        "Of threads, on a GPU": levels.GPU_THREADS,
    }
    for title, passes in lists.items():
        parts += [f"## {title}\n\n", *(pass_entry(n, step.__module__) for n, step in passes)]
    return "".join(parts)


def moves_page() -> str:
    """Moves of a schedule by hand, as schedules spell them."""
    parts = ["# Tile moves\n\n", paragraphs(import_module("weft.tile.moves.values").__doc__)]
    for name, move in MOVES.items():
        head = f"{name}{{{', '.join(f.name for f in fields(move))}}}"
        parts.append(f"## {name}\n\n```\n{head}\n```\n\n{paragraphs(move.__doc__)}")
    return "".join(parts)


# ---- targets, options, commands


def fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, tuple):
        return f"{len(value)} of them" if value else ""
    return code(f"{value:.4g}" if isinstance(value, float) else value)


def targets_page() -> str:
    """Targets, a column for each, and a row for each fact in which they differ."""

    def facts(targets: dict[str, Any], kind: type) -> str:
        shown: list[list[str]] = []
        for f in fields(kind):
            values = [getattr(t, f.name) for t in targets.values()]
            if any(v != values[0] for v in values):
                said = prose(comments(kind).get(f.name, ""))
                shown.append([code(f.name), *map(fact, values), said])
        return paragraphs(kind.__doc__) + table(("", *map(code, targets), ""), shown)

    machine = paragraphs(import_module("weft.targets.machine").__doc__)
    cpus = {f"cpu:{name}": cpu for name, cpu in CPUS.items()}
    languages = table(
        ("language", "title", "prelude"),
        [(code(name), row.title, code(row.prelude)) for name, row in LANGUAGES.items()],
    )
    gpus = facts(dict(GPUS), GPU)
    return f"# Targets\n\n{machine}## CPUs\n\n{facts(cpus, CPU)}## GPUs\n\n{gpus}{languages}"


def called(name: str, thing: Any) -> str:
    """How a class or function is called; on several lines where one is too short."""
    parameters = inspect.signature(thing).parameters.values()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown: list[str] = []
    for p in parameters:
        keyword = p.kind is inspect.Parameter.KEYWORD_ONLY
        shown += ["*"] if keyword and "*" not in shown else []
        kind = "" if p.annotation is inspect.Parameter.empty else p.annotation
        shown.append(stars.get(p.kind, "") + parameter(p.name, kind, p.default))
    line = f"{name}({', '.join(shown)})"
    lines = [f"{name}(", *(f"    {one}," for one in shown), ")"]
    return line if len(line) <= 90 else "\n".join(lines)


def options_page() -> str:
    """What weft exports, each with its signature and docstring; first of all weft.compile."""
    parts = ["# weft in Python\n\n", paragraphs(weft.__doc__)]
    for name in sorted(weft.__all__, key=lambda n: (n != "compile", n)):
        thing = getattr(weft, name)
        head = called(f"weft.{name}", thing)
        parts.append(f"## weft.{name}\n\n```\n{head}\n```\n\n{paragraphs(thing.__doc__)}")
    return "".join(parts)


def commands_page() -> str:
    """The command line, from its own declarations."""
    group: Any = typer.main.get_command(app)
    parts = [f"# The command line\n\n{paragraphs(group.help)}"]
    for name, command in group.commands.items():
        given = [p for p in command.params if p.name != "help"]
        words = (p.metavar or p.name.upper() for p in given if not p.opts[0].startswith("-"))
        head = "".join(f" [{word}]" for word in words)
        shown = [(code(", ".join(p.opts)), p.help or "", default(p)) for p in given]
        options = table(("option", "what it says", "default"), shown)
        told = paragraphs(command.help)
        parts.append(f"## weft {name}\n\n```\nweft {name}{head} [OPTIONS]\n```\n\n{told}{options}")
    return "".join(parts)


def default(parameter: Any) -> str:
    value = parameter.default
    return code(value) if value not in (None, "", False) and not callable(value) else ""


PAGES: dict[str, Callable[[], str]] = {
    "options": options_page,
    "commands": commands_page,
    "ops": ops_page,
    "functions": functions_page,
    "rules": rules_page,
    "passes": passes_page,
    "moves": moves_page,
    "targets": targets_page,
}


def write(folder: Path) -> None:
    """Writes each page whose text has changed."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    print(PAGES[sys.argv[1]]())
