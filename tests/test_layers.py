"""The dependency rule of DESIGN section 2, read from the imports of every weft module.

A module imports its own folder and what its row of LAYERS names; nothing else of weft.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "weft"

PRICED = {"core", "scalar", "targets", "kernel.ops", "emit.spelling", "emit.terms"}
EXPORT = """build_files code command conditions cuda cuda_tables folder tables targets traced
weights""".split()
EXPORTING = {
    *("calling", "cli", "core", "driver", "frontend", "levels", "library", "link", "options"),
    *("runtime", "scalar", "targets", "tensor.ops", "config"),
}
MEASURING = {"weft", "driver", "options", "core.errors", "targets", "tune"}

# What a folder (or a single file) may import besides itself. "*" is everything.
LAYERS: dict[str, set[str]] = {
    "core": set(),
    "scalar": {"core", "library"},
    "targets": {"core"},
    "config": {"core.errors"},
    "library": {"core"},
    # The levels, top down. frontend lowers the torch level to the tensor level.
    "frontend": {
        *("core", "library", "scalar", "targets"),
        *("tensor.ops", "tensor.build", "tensor.grad", "tensor.marks"),
        *("tensor.recurrence", "tensor.loops"),
    },
    "tensor": {"core", "library", "scalar", "targets"},
    "search": {"core", "scalar", "targets", "tensor"},
    "loop": {"core", "scalar", "targets"},
    "interpret": {"core", "library", "scalar", "tensor.ops", "tensor.recurrence", "kernel.ops"},
    "tile": {"core", "scalar", "targets"},
    "kernel": {"core", "scalar", "targets"},
    "emit": {"core", "scalar", "targets", "kernel.ops"},
    # Texts for others, of a level and above none.
    "export": {"core", "scalar"},
    # Below the levels: source text and launch specs, never IR.
    "runtime": {"core", "library", "targets", "config"},
    # The simulator takes source text as well, and compiles and caches it by the runtime's means.
    "sim": {"core", "targets", "config", "runtime.cache", "runtime.compiler"},
    # Above them. link is the half of the driver where buffers of a program meet the runtime's.
    "options": {"core", "config", "targets"},
    "link": {
        "kernel.ops",
        "library",
        "core",
        "config",
        "interpret.memory",
        "scalar",
        "targets",
        "emit.gpu",
        "runtime",
        "sim",
    },
    "text": {"core", "frontend.torch_level", "tensor.text", "scalar.text", "kernel.text"},
    "levels": {"*"},
    # Above a level it schedules, below what it measures: a child process has the whole road.
    "tune": {
        *("core", "config", "options", "runtime", "scalar", "targets", "text", "tile.choices"),
        *("kernel.ops", "emit.gpu", "emit.languages"),  # of the exact price
    },
    "tune.worker": {"*"},
    # The exact price of a CPU's kernel counts what the C compiler is given.
    "tune.price.cpu": {*PRICED, "tile.lower"},
    "tune.price.work": PRICED,
    "tune.price.traffic": PRICED,
    "tune.price.scheduled": {"*"},  # schedules and prices a kernel by itself
    "tune.predicted": {"*"},
    "driver": {"*"},
    "calling": {"core", "frontend", "options", "runtime"},
    "transforms": {"calling", "driver", "library", "options"},
    # Functions of JAX as functions of torch's calls, which the driver compiles.
    "jax": {"driver", "options", "core.errors", "frontend.autograd", "frontend.lines"},
    "dynamo": {"driver", "core.errors", "config", "frontend.python"},
    "cli": {
        *("weft", "driver", "options", "core.errors", "library.calls"),
        *("config", "targets"),
        *("runtime.cache_size", "runtime.toolchain", "runtime.nvidia", "runtime.nvrtc"),
        *("runtime.cuda_timing", "runtime.report", "runtime.child"),
        *("tune.database", "tune.tuner", "tune.predicted", "explain.command", "export.command"),
    },
    # A road in, which ends at torch modules. weft loads `weft.onnx` without what is in the folder.
    "onnx": {"weft", "core.errors"},
    # Weights of few bits, as torch modules: rounded here, or read from files.
    "lowbit": {"core.errors"},
    # A trainer, over what weft gives anyone.
    "train": {"weft", "core.errors"},
    # What tells and shows all of it; but for the work of a kernel, which a report tells too.
    "explain": {"*"},
    "explain.work": {"core", "scalar", "tile.analysis"},
    # Programs as C without torch: they trace, lower and write, and run nothing.
    **dict.fromkeys((f"export.{name}" for name in EXPORT), EXPORTING),
    # What measures against the exact price.
    "cli.calibrate": {*MEASURING, "scalar.nest"},
    "cli.price_check": MEASURING,
    "cli.measuring": MEASURING,
    # `weft check` looks at each kernel by itself, so at what stands below the driver.
    "cli.kernels": {
        *("core", "driver", "frontend.graph", "interpret", "link.places", "options", "scalar"),
    },
    # What would run, where there is no device.
    "cli.tuning": {
        *("core", "driver", "levels", "options", "scalar.nest", "scalar.sizes", "targets", "text"),
        *("link.places", "tune"),
    },
    "__main__": {"cli.main"},
    "weft": {
        *("driver", "transforms", "core.errors", "targets", "runtime.blocks", "runtime.report"),
        *("jax", "lowbit", "onnx"),
    },
}

# The modules that lower a level, or folders of them, may import the ops of the next one as well.
LOWERINGS = {
    "tensor.lower": "loop.ops",
    "loop.lower": "tile.ops",
    "tile.lower": "kernel.ops",
}

# Inside tile/: passes stand over prices, and these over moves, which a pass, a price or a search
# may try. What a folder's modules may not import:
ABOVE = {
    "tile.analysis": {"tile.price", "tile.passes", "tile.lower", "tile.schedule"},
    "tile.moves": {"tile.price", "tile.passes", "tile.lower", "tile.schedule"},
    "tile.price": {"tile.passes", "tile.lower", "tile.schedule"},
    "tile.passes": {"tile.lower", "tile.schedule"},
}

# Third-party libraries that are optional: the one file that owns one may import it inside a
# function. Every other import stands at the top of its file.
OPTIONAL = {
    "cuda",
    "egglog",
    "jax",
    "matplotlib",
    "onnxruntime",
    "openvino",
    "pyopencl",
    "safetensors",
    "transformers",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    """weft/loop/ops.py -> loop.ops; weft/loop/__init__.py -> loop; weft/__init__.py -> weft."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__") or "weft"


def exists(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imported_names(path: Path, node: ast.stmt) -> Iterator[str]:
    """Full names that an import statement brings in, relative ones resolved."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        package = path.relative_to(ROOT).parts[:-1]
        base = list(package[: len(package) - node.level + 1]) if node.level else []
        module = ".".join(base + ([node.module] if node.module else []))
        yield from (f"{module}.{alias.name}" for alias in node.names)


def weft_imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module below weft) for each weft import: `from weft.loop import ops` is loop.ops."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in imported_names(path, node):
            if name == "weft":
                yield node.lineno, "weft"
            elif name.startswith("weft."):
                inner = name.removeprefix("weft.")
                module = inner if exists(inner) else inner.rpartition(".")[0]
                yield node.lineno, module or "weft"


def allowed(importer: str, imported: str) -> bool:
    owner = importer.split(".")[0]
    permitted = LAYERS.get(importer, LAYERS[owner]) | {owner}
    permitted |= {ops for lower, ops in LOWERINGS.items() if within(importer, lower)}
    return "*" in permitted or any(within(imported, name) for name in permitted)


def goes_up(importer: str, imported: str) -> bool:
    """Whether a module of tile/ imports from a folder above its own."""
    above = {name for folder, names in ABOVE.items() if within(importer, folder) for name in names}
    return any(within(imported, name) for name in above)


def within(module: str, name: str) -> bool:
    """Whether it is that module, or in that folder."""
    return module == name or module.startswith(f"{name}.")


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_follow_the_layers(path: Path) -> None:
    importer = dotted(path)
    assert importer.split(".")[0] in LAYERS, f"{importer}: a new folder needs a row in LAYERS"
    wrong = [
        f"weft/{path.relative_to(PACKAGE)}:{line}: {importer} imports {imported}"
        for line, imported in weft_imports(path)
        if not allowed(importer, imported) or goes_up(importer, imported)
    ]
    assert not wrong, "against the dependency rule:\n  " + "\n  ".join(wrong)


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_stand_at_the_top(path: Path) -> None:
    tree = ast.parse(path.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    wrong = [
        f"weft/{path.relative_to(PACKAGE)}:{node.lineno}: {name}"
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported_names(path, node)
        if name.split(".")[0] not in OPTIONAL
    ]
    assert not wrong, "imports inside a function:\n  " + "\n  ".join(wrong)


def test_core_knows_no_library() -> None:
    names = {
        name.split(".")[0]
        for path in (PACKAGE / "core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported_names(path, node)
    }
    assert "torch" not in names and "numpy" in names


def test_package_holds_public_names_only() -> None:
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__")
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        assert named or docstring or isinstance(node, ast.Import | ast.ImportFrom), (
            f"weft/__init__.py:{node.lineno}: only imports and __all__ belong here"
        )


@pytest.mark.parametrize(
    ("importer", "imported", "verdict"),
    [
        ("loop.rules", "loop.ops", True),
        ("loop.rules", "scalar.rules", True),
        ("loop.rules", "tile.ops", False),
        ("loop.lower", "tile.ops", True),
        ("loop.lower", "tile.moves", False),
        ("loop.lower", "kernel.ops", False),
        ("tile.lower.lanes", "kernel.ops", True),
        ("tile.lowered", "kernel.ops", False),
        ("tile.passes.cpu.stage_rows", "kernel.ops", False),
        ("core.node", "scalar.ops", False),
        ("scalar.rules", "targets.cpu", False),
        ("frontend.lower", "tensor.ops", True),
        ("frontend.lower", "tensor.rules", False),
        ("emit.c", "kernel.ops", True),
        ("emit.c", "kernel.rules", False),
        ("runtime.launch", "kernel.ops", False),
        ("sim.build", "runtime.cache", True),
        ("sim.build", "runtime.program", False),
        ("tile.search", "runtime.timing", False),
        ("driver", "tile.search", True),
        ("link.program", "tile.ops", False),
        ("weft", "runtime.cache", False),
        ("cli.main", "driver", True),
        ("cli.main", "runtime.cache", False),
        ("dynamo", "frontend.capture", False),
    ],
)
def test_the_rule_itself(importer: str, imported: str, verdict: bool) -> None:
    assert allowed(importer, imported) is verdict


@pytest.mark.parametrize(
    ("importer", "imported", "verdict"),
    [
        ("tile.price.cost", "tile.passes.cpu.stage_rows", True),
        ("tile.price.cost", "tile.moves.stage", False),
        ("tile.moves.online", "tile.passes.programs.merge_rows", True),
        ("tile.moves.online", "tile.moves.merge", False),
        ("tile.moves.peel", "tile.price.axes", True),
        ("tile.analysis.tiles", "tile.price.products", True),
        ("tile.passes.cpu.vectorize_loops", "tile.price.axes", False),
        ("tile.lower.kernels", "tile.moves.peel", False),
    ],
)
def test_strategies_stand_over_prices_and_moves(
    importer: str, imported: str, verdict: bool
) -> None:
    assert goes_up(importer, imported) is verdict
