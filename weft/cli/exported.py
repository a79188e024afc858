"""A torch.export archive (model.pt2) as a SOURCE, read without unpickling anything.

load_exported(Path("model.pt2"))      # the program, with inputs of the shapes that it was made with

torch.export.load unpickles: example inputs, and weights of tensor subclasses. The program itself
is JSON, and plain weights are bytes. Here only these are read, and all strings of the JSON that
torch would evaluate, or paste into code, are checked first.
"""

# This file reaches into torch: the parts of torch.export.load have no public names.
# pyright: reportPrivateUsage=false

import ast
import inspect
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._export.serde.schema import ExportedProgram as Schema
from torch._export.serde.serialize import ExportedProgramDeserializer, _bytes_to_dataclass
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive._package import _load_constants, _load_state_dict
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo

from weft.cli.program import Source
from weft.core.errors import SourceError

PICKLED = "which weft does not unpickle, as that runs code of the file"
OPERATORS = ("torch.ops.", "_operator.", "math.", "torch.sym_")
FREE = {  # what torch neither evaluates nor pastes into code
    "metadata", "as_string", "as_strings", "in_spec", "out_spec", "fqn", "torch_version",
    "treespec_namedtuple_fields", "opset_version",
}  # fmt: skip
SIZES = {"expr_str", "guards_code"}  # expressions over sizes, as Python that torch evaluates
CALLS = set(
    """Symbol Integer Rational Float Add Mul Pow Mod Max Min floor ceiling Eq Ne Lt Le Gt Ge And Or
    Not FloorDiv PythonMod CleanDiv CeilDiv ToFloat TruncToInt FloatTrueDiv IntTrueDiv
    PowByNatural max min size stride storage_offset""".split()
)
TREE = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Subscript, ast.Constant,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.Load,
)  # fmt: skip


def load_exported(path: Path) -> Source:
    """The program of an archive; SourceError for one that is broken, or needs a pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n.partition("/")[2] for n in archive.namelist()]
            root = archive.namelist()[0].partition("/")[0] if names else ""
            read = {n: json.loads(archive.read(f"{root}/{n}")) for n in names if is_read(n)}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, RuntimeError) as error:
        raise SourceError(f"{path} is no whole torch.export archive: {error}") from None
    models = [n for n in names if n.startswith("models/")]
    if len(models) != 1 or models[0] not in read:
        told = "made by torch.export.save of this or a near version of torch"
        raise SourceError(f"{path} does not hold one exported program: write it anew, {told}")
    check(path, read, names)
    program = deserialized(path, models[0])
    module = program.module()
    args, kwargs = from_inputs(program, example)
    ranges = program.range_constraints
    free, named = from_inputs(program, lambda value: free_sizes(value, ranges))
    names = inspect.signature(module.forward).parameters
    sizes = {**dict(zip(names, free, strict=False)), **named}
    return Source(module, args, kwargs, path.stem, str(path), sizes)


def is_read(name: str) -> bool:
    return name.endswith(".json") and name.startswith(("models/", "data/"))


def check(path: Path, read: dict[str, Any], names: list[str]) -> None:
    """SourceError for what would be unpickled or run while the program is loaded."""
    if any(re.fullmatch(r"data/(weights|constants)/[^/]*\.pt", n) for n in names):
        raise SourceError(f"{path} is of an old format with a pickle of all weights, {PICKLED}")
    for name, tree in read.items():
        if name.startswith("data/"):
            for weight, told in tree["config"].items():
                raw = not told["use_pickle"] and told["path_name"].startswith(
                    ("weight_", "tensor_")
                )
                if not raw:
                    raise SourceError(f"{path}: {weight} is a pickle, {PICKLED}")
        for key, text in strings(tree):
            if not is_safe(key, text):
                raise SourceError(f"{path}: the {key} {text[:80]!r} is not one that weft reads")


def strings(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings of a tree, with the key each is under; keys are strings as well."""
    if isinstance(tree, dict):
        for inner, value in tree.items():
            yield "name", inner
            if inner not in FREE:
                yield from strings(value, inner)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value, key)
    elif isinstance(tree, str):
        yield key, tree


def is_safe(key: str, text: str) -> bool:
    if key in SIZES:
        return is_arithmetic(text)
    if key == "target":
        return text.startswith(OPERATORS) and "__" not in text and bool(NAME.fullmatch(text))
    return bool(NAME.fullmatch(text))


NAME = re.compile(r"[\w.\-]*")


def is_arithmetic(text: str) -> bool:
    """Whether a text computes with sizes and does nothing else."""
    try:
        nodes = [*ast.walk(ast.parse(text, mode="eval"))]
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    names += [n.attr for n in nodes if isinstance(n, ast.Attribute)]
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    plain = all(isinstance(n, TREE) for n in nodes) and all(map(NAME.fullmatch, texts))
    return plain and all(n in CALLS or re.fullmatch(r"[su]\d+|L|true|false", n) for n in names)


def deserialized(path: Path, model: str) -> ExportedProgram:
    """The program, by the parts of torch.export.load that read no pickle."""
    name = Path(model).stem
    try:
        reader = PT2ArchiveReader(str(path))
        schema = _bytes_to_dataclass(Schema, reader.read_bytes(model))
        state, constants = _load_state_dict(reader, name), _load_constants(reader, name)
        return ExportedProgramDeserializer().deserialize(schema, state, constants, b"")
    except Exception as error:  # whatever a broken file makes of torch's reader
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{path} cannot be read: {first}") from None


def from_inputs(
    program: ExportedProgram, make: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What is made of each input that the program was exported with, in place of its arguments."""
    values = {n.name: n.meta.get("val") for n in program.graph.find_nodes(op="placeholder")}
    leaves: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            arg: Any = spec.arg
            constant = isinstance(arg, ConstantArgument)
            leaves.append(make(arg.value if constant else values[arg.name]))
    tree: Any = program.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(leaves, tree)
    return tuple(args), dict(kwargs)


def example(value: Any) -> Any:
    """An argument of that shape and dtype: random numbers, or zeros."""
    if not isinstance(value, torch.Tensor):
        return hint(value)
    shape, strides = ([hint(n) for n in part] for part in (value.shape, value.stride()))
    made = torch.empty_strided(shape, strides, dtype=value.dtype)
    return made.normal_() if value.is_floating_point() else made.zero_()


def hint(n: Any) -> Any:
    return int(n.node.hint) if isinstance(n, torch.SymInt) else n


def free_sizes(value: Any, ranges: Mapping[Any, Any]) -> dict[int, tuple[int, int | None]] | None:
    """The sizes of a tensor that the export has left free, as weft.compile(sizes=...) has them."""
    if not isinstance(value, torch.Tensor):
        return None
    found: dict[int, tuple[int, int | None]] = {}
    for d, n in enumerate(value.shape):
        if isinstance(n, torch.SymInt) and n.node.maybe_as_int() is None:
            known = ranges.get(n.node.expr)
            most = None if known is None or known.upper == int_oo else int(known.upper)
            found[d] = (0 if known is None else max(0, int(known.lower))), most
    return found
