"""The files of an exported model: all of them, or none.

write_folder(Path("out"), "mlp", calls)    # a Traced for each signature
"""

import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from weft.core.errors import CaptureError, SourceError, WeftError
from weft.export import build_files, cuda_tables
from weft.export.code import Code, Isa
from weft.export.cuda_tables import Kernel
from weft.export.tables import calls_source, code_source, model_source
from weft.export.traced import Traced
from weft.export.weights import Weight, merged, write
from weft.runtime.compiler import HEADERS
from weft.runtime.native import once_inputs

OWN = Path(__file__).parent
CPU = """weft.h weft_main.h weft_pool.h weft_vector.h weft_math.h weft_math_f64.h
gpu/weft_special.h weft_steps.c weft_pool.c""".split()
# What a model has anywhere.
MODEL = "weft_parts.h weft_instance.c weft_shapes.c weft_random.c weft_weights.c".split()
ON_CPUS = "weft_cpu.h weft_model.c".split()
ON_GPUS = "weft_cuda.h weft_cuda.c weft_cuda_open.c weft_driver.c".split()
# Files and targets of builds, and the system's headers, before which -I. finds the model's own.
TAKEN = """example all clean help install package test alloca assert ctype endian errno fcntl
features float immintrin limits math pthread sched setjmp signal stdarg stdatomic stddef stdint
stdio stdlib string strings time unistd""".split()
PER_CALL = "#define WEFT_PER_CALL _Thread_local\n"  # threads of one process ask for several numbers


def renamed(text: str, name: str) -> str:
    """A text in which all that is called weft_... has the model's name."""
    text = re.sub(r'"(gpu/)?weft(_\w+)?\.h"', lambda m: f'"weft{m[2] or "_core"}.h"', text)
    text = text.replace('"weft_model.h"', '"weft.h"')
    return re.sub(r"\bweft(_\w+)?\.h\b|\bweft_", lambda m: header(m[0], name), text)


def header(word: str, name: str) -> str:
    return f"{name}{word.removeprefix('weft')}"


def check_name(name: str) -> str:
    """A name that C symbols may begin with; WeftError for another."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in TAKEN:
        told = "small letters, digits and _, a letter first: --name gives another"
        raise WeftError(f"{name!r} is no name for a model's C functions: {told}")
    return name


def kernels_of(codes: Iterable[Code], name: str, isa: Isa) -> tuple[dict[str, str], list[Code]]:
    """Kernels of all signatures for an instruction set, each by its own symbol; equal ones once."""
    texts: dict[str, str] = {}
    ours: list[Code] = []
    for code in codes:
        symbols: dict[str, str] = {}
        for symbol, source in code.sources.items():
            stem = f"{name}_{isa.name}_{symbol.removeprefix('k_')}"
            turn = (stem, *(f"{stem}_{i}" for i in range(2, len(texts) + 3)))
            own = ((s, re.sub(rf"\b{symbol}\b", s, source)) for s in turn)
            symbols[symbol], text = next((s, t) for s, t in own if texts.get(s, t) == t)
            texts[symbols[symbol]] = text
        ours.append(code.with_symbols(symbols))
    return texts, ours


# A loop whose number nothing reads still has it, a kernel of no elements its operands, a program of
# no kernels its tables. GCC takes a vector that is stored in part for a whole one.
LENIENT = "".join(
    f'#pragma GCC diagnostic ignored "-W{what}"\n'
    for what in ("unused-variable", "unused-const-variable", "unused-parameter", "array-bounds")
)


def guarded(text: str, isa: Isa) -> str:
    """C that other machines' compilers pass over."""
    return f"#ifdef {isa.machine}\n{text}#endif\n" if isa.machine else text


def check_state(
    calls: Sequence[Traced], weights: Sequence[Weight], places: Sequence[Sequence[int]]
) -> None:
    """CaptureError where a signature would not see what another writes into a weight."""
    rows = [*zip(calls, places, strict=True)]
    written = {
        own[b.of]
        for call, own in rows
        for b in (call.bindings[i] for i in call.captured.mutations)
        if b.memory == "of_weight"
    }
    memory = {weights[n].tensor.untyped_storage().data_ptr() for n in written} - {0}
    for call, own in rows:
        names = ((c.layout, name) for c in call.codes for name in once_inputs(c.layout))
        read = (call.bindings[layout.index[name]] for layout, name in names)
        once = {own[b.of] for b in read if b.memory == "of_weight"}
        for n in own:
            shares = weights[n].tensor.untyped_storage().data_ptr() in memory
            if shares and (n not in written or n in once):
                told = "another signature writes to its memory"
                raise CaptureError(f"signature {call.name} keeps {weights[n].name}: {told}")


def texts_of(name: str, calls: Sequence[Traced]) -> dict[str, str]:
    """The C of a model by its path, but for what builds it."""
    weights, places = merged([call.weights for call in calls])
    check_state(calls, weights, places)
    isas = isas_of(calls)
    gpu = isas[0].capability is not None
    made, cubins = (cuda_files if gpu else cpu_files)(name, calls, places)
    files = {**made, f"{name}.c": model_source(calls, isas, weights, places, cubins)}
    shared = [] if gpu else [HEADERS / f for f in CPU]
    for path in (*shared, *(OWN / f for f in (*MODEL, *(ON_GPUS if gpu else ON_CPUS)))):
        own = "weft_core.h" if path.name == "weft.h" else path.name
        text = (PER_CALL if path.name == "weft.h" else "") + path.read_text()
        files[f"runtime/{header(own, name)}"] = text
    files["example.c"] = build_files.example(calls[0])
    device = (OWN / "weft_model_cuda.h").read_text() if gpu else ""
    files[f"{name}.h"] = (OWN / "weft_model.h").read_text().replace("/* DEVICE */\n", device)
    return {path: renamed(text, name) for path, text in files.items()}


Files = tuple[dict[str, str], dict[str, list[Kernel]]]  # texts, and kernels of GPUs by these


def cpu_files(name: str, calls: Sequence[Traced], places: Sequence[Sequence[int]]) -> Files:
    """What is a model's own of CPUs: kernels, their tables, and what calls them."""
    files: dict[str, str] = {}
    for made in zip(*(call.codes for call in calls), strict=True):
        isa = made[0].isa
        kernels, ours = kernels_of(made, name, isa)
        for symbol, text in kernels.items():
            files[f"kernels/{isa.name}/{symbol}.c"] = guarded(LENIENT + text, isa)
        for n, (code, call) in enumerate(zip(ours, calls, strict=True)):
            text = code_source(code, call, places[n], f"{isa.name}_{n}")
            files[f"kernels/{isa.name}/{name}_{isa.name}_{n}.c"] = guarded(LENIENT + text, isa)
    files[f"runtime/{name}_calls.c"] = calls_source([c for call in calls for c in call.codes])
    return files, {}


def cuda_files(name: str, calls: Sequence[Traced], places: Sequence[Sequence[int]]) -> Files:
    """What is a model's own of GPUs: cubins, and the tables of launches."""
    files: dict[str, str] = {}
    cubins: dict[str, list[Kernel]] = {}
    for made in zip(*(call.codes for call in calls), strict=True):
        arch = made[0].isa.name
        kernels = cuda_tables.kernels_of(made, f"{name}_{arch}_cubin")
        cubins[arch] = [*kernels.values()]
        for kernel in cubins[arch]:
            files[f"kernels/{arch}/{kernel.array}.c"] = cuda_tables.cubin_source(kernel)
        for n, (code, call) in enumerate(zip(made, calls, strict=True)):
            text = cuda_tables.cuda_source(code, call, places[n], f"{arch}_{n}", [*kernels])
            files[f"kernels/{arch}/{name}_{arch}_{n}.c"] = LENIENT + text
    return files, cubins


def isas_of(calls: Sequence[Traced]) -> list[Isa]:
    return [code.isa for code in calls[0].codes]


def write_folder(folder: Path, name: str, calls: Sequence[Traced]) -> None:
    """All files of a model, into a folder that is new or was exported to; SourceError if not."""
    files = texts_of(check_name(name), calls)
    files |= build_files.build_files(name, calls, isas_of(calls), sorted(files))
    weights, _ = merged([call.weights for call in calls])
    folder = folder.resolve()  # of a link the folder itself, which is renamed
    made, before = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}") for _ in range(2))
    try:
        if folder.exists() and not (folder / build_files.MARK).is_file() and any(folder.iterdir()):
            raise SourceError(f"{folder} holds other files: export to a folder of its own")
        for path, text in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        if weights:
            write(weights, made / "weights.safetensors")
        if folder.exists():
            folder.rename(before)
        made.rename(folder)
        shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        raise SourceError(f"cannot write {folder}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            shutil.rmtree(made)
