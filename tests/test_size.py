"""Budgets, there to force generality: when one binds, generalise, don't squeeze.

Lines are counted as tinygrad's sz.py counts them: those that hold code. Blank lines, comments and
docstrings cost nothing. The compiler is what leads from PyTorch to sources, as levels.py lists it:
everything of weft/ but its command line, and what runs programs: runtime, simulator, interpreters,
the tuner, which measures them, and driver.py, calling.py and link/, which hand these a program. The
other budget is for all of weft/ and bench/: tinygrad's own limit, 26,000, and what was asked for
since: loops of a user's text that start anywhere, rows of scatters, bags, random numbers and
special functions, sorts, results in place, whole steps, sparse gradients, several processes, their
benchmarks. On top of both, as issue 16 has it, come
scalar/choices.py, tune/price and moves as values: what names decisions, what counts the work of a
scheduled kernel, and what names, prints, parses, checks and lists moves of a user's schedule; none
of these decides anything by default. So does tile/price/lines.py, which prices the caches for
columns, and does decide. weft/search with its benchmark, weft/explain, gradients of tensor
programs, weft/train with its benchmark, and the roads in and out, which nothing imports (ONNX, JAX,
weights of few bits, exported C and CUDA, MLIR, Triton), have budgets of their own.
`python tests/test_size.py` prints all.
"""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_COMPILER = {
    "__main__.py", "cli", "runtime", "sim", "interpret", "link", "driver.py", "calling.py",
    "tune", "search", "explain", "train", "onnx", "jax", "export", "lowbit",
}  # fmt: skip

GRADIENTS = """tensor/grad tensor/preimage tensor/folds tensor/places tensor/slopes tensor/marks
frontend/derivatives frontend/aten_gradients frontend/aten/derivatives library/derivatives
transforms""".split()

BY_HAND = ("values", "loop_values", "slab_values", "script", "legal")

COMPILER_LINES = (
    26_600  # 17,200 before training: 100 rows, segments, warm starts; 300 of collectives
)
SEARCH_LINES = 2_640  # 1,200 until it had a benchmark, deltas, splits, functions, enlarge, memory
GRADIENT_LINES = 1_040  # 1,000 without values of a scatter that are the last, or left out
TRAIN_LINES = 650
ROADS_LINES = {
    "onnx": 3_500,
    "jax": 1_500,
    "export": 3_260,
    "lowbit": 1_070,
}  # of folders that nothing imports
EXPLAIN_LINES = 700  # of weft/explain, which decides nothing: it counts, tells and shows
ALL_LINES = 38_300
FILE_LINES = 400
FUNCTION_LINES = 50

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def on_top() -> list[Path]:
    moves = (ROOT / f"weft/tile/moves/{name}.py" for name in BY_HAND)
    prices = ROOT / "weft/tile/price/lines.py", *sources("weft/tune/price")
    return [ROOT / "weft/scalar/choices.py", *prices, *moves]


def compiler() -> list[Path]:
    own = [p for p in sources("weft") if p.relative_to(ROOT).parts[1] not in NOT_COMPILER]
    return [p for p in own if p not in (*on_top(), *differentiating())]


def searching() -> list[Path]:
    return [*sources("weft/search"), ROOT / "bench" / "search.py"]


def differentiating() -> list[Path]:
    return [ROOT / f"weft/{name}.py" for name in GRADIENTS]


def training() -> list[Path]:
    return [*sources("weft/train"), ROOT / "bench" / "nnue.py"]


def explaining() -> list[Path]:
    return sources("weft/explain")


def roads() -> list[Path]:
    return [path for name in ROADS_LINES for path in sources(f"weft/{name}")]


def everything() -> list[Path]:
    apart = (*on_top(), *searching(), *explaining(), *differentiating(), *training(), *roads())
    return [p for p in sources("weft", "bench") if p not in apart]


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


def code_lines(path: Path) -> int:
    """Lines that hold a token of code; a string that is a whole statement is a docstring."""
    lines: set[int] = set()
    starts = True  # whether the next token begins a statement
    with path.open() as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in NO_CODE:
                starts = starts or token.type == tokenize.NEWLINE
                continue
            if not (starts and token.type == tokenize.STRING):
                lines.update(range(token.start[0], token.end[0] + 1))
            starts = False
    return len(lines)


def total(paths: list[Path]) -> int:
    return sum(map(code_lines, paths))


def test_what_counts(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text('"""Doc\nstring."""\n\n# why\nx = """a\nb"""  # two\n\n\ndef f():\n    "d"\n')
    assert code_lines(path) == 3


def test_compiler_budget() -> None:
    assert total(compiler()) < COMPILER_LINES


def test_search_budget() -> None:
    assert total(searching()) <= SEARCH_LINES


def test_gradients_budget() -> None:
    assert total(differentiating()) <= GRADIENT_LINES


def test_train_budget() -> None:
    assert total(training()) <= TRAIN_LINES
    assert total(sources("weft/train")) <= 400, "as issue 18 has it"


def test_explain_budget() -> None:
    assert total(explaining()) <= EXPLAIN_LINES


def test_budgets_of_roads() -> None:
    for name, lines in ROADS_LINES.items():
        assert total(sources(f"weft/{name}")) <= lines, name


def test_whole_budget() -> None:
    assert total(everything()) < ALL_LINES


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


if __name__ == "__main__":
    print(f"compiler {total(compiler())} of {COMPILER_LINES}")
    print(f"weft and bench {total(everything())} of {ALL_LINES}")
    print(f"choices, moves and the exact price, on top {total(on_top())}")
    print(f"search {total(searching())} of {SEARCH_LINES}")
    print(f"explain {total(explaining())} of {EXPLAIN_LINES}")
    print(f"gradients {total(differentiating())} of {GRADIENT_LINES}")
    print(f"trainer {total(training())} of {TRAIN_LINES}")
    for name, lines in ROADS_LINES.items():
        print(f"{name} {total(sources(f'weft/{name}'))} of {lines}")
    print(f"tests {total(sources('tests'))}")
