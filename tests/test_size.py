"""Budgets, there to force generality: when one binds, generalise, don't squeeze."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_COMPILER = {"cli", "runtime", "sim"}

COMPILER_LINES = 12_000
ALL_LINES = 20_000
FILE_LINES = 400
FUNCTION_LINES = 50


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_compiler_budget() -> None:
    compiler = [p for p in sources("weft") if p.relative_to(ROOT).parts[1] not in NOT_COMPILER]
    assert sum(map(line_count, compiler)) < COMPILER_LINES


def test_whole_budget() -> None:
    assert sum(map(line_count, sources("weft", "tests", "bench"))) < ALL_LINES


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): line_count(path)
        for path in sources("weft", "tests", "bench")
        if line_count(path) > FILE_LINES
    }
    assert not long, f"files over {FILE_LINES} lines: {long}"


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in sources("weft", "tests", "bench")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long, f"functions over {FUNCTION_LINES} lines:\n  " + "\n  ".join(long)
