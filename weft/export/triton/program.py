"""Programs of a GPU's tile level as one Python file of Triton kernels, which run() launches.

print(to_triton(program))        # import triton ...; a @triton.jit function for each kernel; run()
The tile level is taken where blocks are decided and threads' work is not, as `blockify_launch`
leaves it. Before, no loop is bound to the grid. After, slabs, fragments and copies ahead say how
threads share a block's work, which Triton decides for itself: a kernel that says so too would be
read again as what it was made from. plan.py tells what becomes of a block's loops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.core.errors import UnsupportedOpError
from weft.core.types import TensorType
from weft.export.triton.folds import Folds
from weft.export.triton.helpers import HELPERS
from weft.export.triton.nests import Nest
from weft.export.triton.text import RESERVED, Names, arguments, facts, wrapped
from weft.scalar.nest import Buffer, Call, Kernel, Program
from weft.scalar.resize import sizes_of
from weft.scalar.rows import expanded

EXPECT = '''
def expect(name, x, shape, strides, dtype):
    """Refuses a tensor that the kernels below were not printed for."""
    same = all(n < 2 or a == b for n, a, b in zip(shape, x.stride(), strides))
    if x.dtype != dtype or tuple(x.shape) != shape or not (same or x.numel() == 0):
        raise ValueError(f"{name} must be {dtype} of shape {shape} and strides {strides}")
'''
# Sums are not to be contracted with products: kernels that compute a value again get the same bits.
OPTIONS = "enable_fp_fusion=False"


def to_triton(program: Program) -> str:
    """The text of a Python file, whose run() takes the program's inputs and returns its outputs.

    UnsupportedOpError, which names all of it, for what Triton cannot say.
    """
    if sizes_of(program):
        told = "Triton out has no sizes that are no numbers"
        raise UnsupportedOpError(f"{told}: compile with dynamic=False")
    program = expanded(program)
    dtypes = dict.fromkeys(b.type.dtype for b in program.buffers())
    problems = [f"elements of {d}" for d in dtypes if d.is_float and d.bits == 8]
    launcher, texts = _Launcher(program), list[str]()
    names = Names({*HELPERS, *launcher.fresh.taken})
    folds = Folds(problems.append)
    for step in program.steps:
        if not isinstance(step, Kernel):
            assert isinstance(step, Call)
            if step.target.startswith("weft.") and step.target != "weft.wrote":
                problems.append(f"a call of {step.target}, which is weft's")
            launcher.call(step)
            continue

        def problem(told: str, kernel: Kernel = step) -> None:
            text = f"kernel {kernel.name}: {told}"
            if text not in problems:
                problems.append(text)

        folds.problem = problem
        made = Nest(step, names(f"{step.name}_kernel"), folds, problem)
        texts.append(made.whole())
        launcher.launch(made)
    if problems:
        raise UnsupportedOpError(f"Triton out has no {'; '.join(problems)}")
    texts = [*folds.texts.values(), *texts]
    used = _words(texts)
    helpers = [text for name, text in HELPERS.items() if name in used]
    imports = "import torch\nimport triton\nimport triton.language as tl\n"
    if "libdevice" in used | _words(helpers):
        imports += "from triton.language.extra import libdevice\n"
    parts = [
        imports,
        *helpers,
        *texts,
        EXPECT.strip() + "\n",
        launcher.text(),
    ]
    return "\n\n".join(parts)


def _words(texts: Sequence[str]) -> set[str]:
    """Names in code, other than attributes."""
    code = re.sub(r"^ *#.*", "", "\n".join(texts), flags=re.MULTILINE)
    return {*re.findall(r"(?<![\w.])\w+", code)}


class _Launcher:
    """The function run(): it allocates buffers and launches kernels in order."""

    def __init__(self, program: Program) -> None:
        self.program, self.lines = program, list[str]()
        self.fresh, self.names = Names({*RESERVED}), dict[str, str]()
        self.types: dict[str, TensorType] = {}
        for b in program.inputs:
            self.name(b)
        self.inputs = [self.names[b.name] for b in program.inputs]
        for b, name in zip(program.inputs, self.inputs, strict=True):
            self.lines.append(f'expect("{name}", {name}, {facts(b.type)})')
        if self.inputs:
            self.lines.append(f"device = {self.inputs[0]}.device")
        widest: dict[str, Buffer] = {}
        for b in program.buffers():
            if b.name not in self.names and (
                b.name not in widest or widest[b.name].type.span < b.type.span
            ):
                widest[b.name] = b
        for b in [*program.outputs, *widest.values()]:
            if b.name not in self.names:
                made = widest[b.name]
                line = f"{self.name(made)} = torch.empty_strided({facts(made.type)}, device=device)"
                self.lines.append(line)

    def name(self, buffer: Buffer) -> str:
        found = self.names[buffer.name] = self.fresh(buffer.name)
        self.types[buffer.name] = buffer.type
        return found

    def launch(self, made: Nest) -> None:
        if 0 in made.grid:
            return
        args = [self.names[name] for name in made.buffers]
        programs = 1
        for n in made.grid:
            programs *= n
        for buffer in made.scratch.values():
            name = self.fresh(buffer.name)
            flat = TensorType(buffer.type.dtype, (programs * buffer.type.span,))
            self.lines.append(f"{name} = torch.empty_strided({facts(flat)}, device=device)")
            args.append(name)
        options = [f"num_warps={made.warps}", OPTIONS]
        if made.checks:
            options += ["debug=True", "sanitize_overflow=False"]
        grid = f"({', '.join(map(str, made.grid))}{',' * (len(made.grid) == 1)})"
        self.lines.append(f"{made.name}[{grid}]({', '.join([*args, *options])})")

    def seen(self, buffer: Buffer) -> str:
        """A buffer as a library call has it."""
        name, type_ = self.names[buffer.name], buffer.type
        if self.types[buffer.name] == type_:
            return name
        return f"{name}.as_strided({facts(type_).partition(', dtype')[0]})"

    def call(self, step: Call) -> None:
        if step.target == "weft.wrote":
            written = ", ".join(self.names[b.name] for b in step.inputs)
            self.lines.append(f"torch.autograd.graph.increment_version([{written}])")
            return
        given = arguments(step.arguments, [self.seen(b) for b in step.inputs])
        result = self.fresh("result")
        self.lines.append(f"{result} = torch.ops.{step.target}({given})")
        outputs: Sequence[Buffer] = step.outputs
        for i, b in enumerate(outputs):
            part = f"{result}[{i}]"
            one = f"{part} if isinstance({result}, (list, tuple)) else {result}"
            self.lines.append(f"{self.seen(b)}.copy_({one})")

    def text(self) -> str:
        def shown(buffers: Sequence[Buffer]) -> str:
            return ", ".join(f"{self.names[b.name]}: {b.type}" for b in buffers)

        params = ", ".join(self.inputs) or 'device="cuda"'
        outputs = [self.names[b.name] for b in self.program.outputs]
        result = ", ".join(outputs) + "," * (len(outputs) == 1)
        told = f'"""({shown(self.program.inputs)}) -> ({shown(self.program.outputs)})"""'
        body = [told, *self.lines, f"return ({result})"]
        return "\n".join(
            [wrapped(f"def run({params}):"), *(wrapped(f"    {line}") for line in body), ""]
        )
