"""Loads a SOURCE: -c text, file.py:name, model.onnx, model.gguf, model.pt2, a folder or IR.

load(SourceSpec(text="torch.randn(4) + 1"))      # -> Source
load(SourceSpec(path="rmsnorm.tile"))            # -> IrText
"""

import importlib.util
import sys
from pathlib import Path

import torch

import weft
from weft.cli.exported import load_exported
from weft.cli.inline import load_inline
from weft.cli.model_folder import load_folder, load_gguf_file, load_hub_name
from weft.cli.program import IrText, Source, SourceSpec, from_object, user_code
from weft.core.errors import SourceError

KINDS = """-c "EXPRESSION", file.py:name, a model folder, a cached hub name, model.onnx, \
model.gguf, model.pt2 or an IR file"""


def load(spec: SourceSpec) -> Source | IrText:
    """Loads a program; the seed decides every random value in it. SourceError if that fails."""
    torch.manual_seed(spec.seed)
    if spec.device == "cpu":
        return load_here(spec)
    with torch.device(spec.device):
        found = load_here(spec)
    return found.on(spec.device) if isinstance(found, Source) else found


def load_here(spec: SourceSpec) -> Source | IrText:
    if spec.text is not None and spec.path is not None:
        raise SourceError(f"one SOURCE, not two: -c text and {spec.path}")
    if spec.text is not None:
        return load_inline(spec.text)
    if spec.path is None:
        raise SourceError(f"nothing to compile: SOURCE is {KINDS}")
    return load_path(spec.path, meta=spec.meta)


def load_path(name: str, *, meta: bool) -> Source | IrText:
    file, colon, attribute = name.rpartition(":")
    if colon and file.endswith(".py"):
        return load_python(Path(file), attribute)
    path = Path(name)
    if path.is_dir():
        return load_folder(path, meta=meta)
    if path.suffix == ".py":
        raise SourceError(f"which name in {name}? Write {name}:NAME")
    if path.suffix == ".onnx":
        return from_object(weft.from_onnx(path), {}, path.stem, name)
    if path.suffix == ".gguf":
        return load_gguf_file(path)
    if name == "-":
        return IrText(sys.stdin.read(), "stdin")
    if path.is_file():
        return load_exported(path) if path.suffix == ".pt2" else load_ir(path)
    model = load_hub_name(name, meta=meta)
    if model is not None:
        return model
    raise SourceError(f"no file, model folder or cached hub model {name!r}: SOURCE is {KINDS}")


def load_ir(path: Path) -> IrText:
    try:
        return IrText(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise SourceError(f"{path} is not text, so not an IR file") from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None


def load_python(path: Path, attribute: str) -> Source:
    """Loads `file.py:name`: imports the file; the name is a module, class or function in it."""
    if not path.is_file():
        raise SourceError(f"no file {path}")
    file = str(path.resolve())
    spec = importlib.util.spec_from_file_location(path.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with user_code(file):
            try:
                spec.loader.exec_module(module)
            except SyntaxError as error:
                place = f"{path} line {error.lineno}:  {(error.text or '').strip()}"
                raise SourceError(f"syntax error: {error.msg}", place) from None
            if not hasattr(module, attribute):
                raise SourceError(f"{path} defines no {attribute!r}")
            return from_object(getattr(module, attribute), vars(module), attribute, file)
    finally:
        sys.path.pop(0)
