"""The threads programs run on: torch's own OpenMP pool where there is one, else weft's small pool.

table = thread_table(tools)     # the address of the weft_table (weft.h) that programs are bound to
run = builtin("weft_runtime_segment", address)  # run(at, inputs, fresh, threads), as that C has it
"""

import ctypes
import re
import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

from weft.runtime.compiler import HEADERS
from weft.runtime.toolchain import Toolchain

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_in_parallel")
_tables: dict[bool, int] = {}
_loaded: list[ctypes.CDLL] = []
_quick: WeakSet[type] = WeakSet()  # classes whose instances are called by C
_lock = threading.Lock()


def thread_table(tools: Toolchain, openmp: bool = True) -> int:
    """Load the thread runtime, once per process; `openmp=False` asks for weft's own pool."""
    with _lock:
        if openmp not in _tables:
            _tables[openmp] = load_table(tools, openmp_symbols() if openmp else None)
        return _tables[openmp]


def load_table(tools: Toolchain, symbols: tuple[int, ...] | None) -> int:
    """Build and load weft_runtime.c and its pool; two uses get a copy each, of their own state."""
    flavour = f"/* {'pool' if symbols is None else 'openmp'} */"
    names = "pool", "runtime", "calls"
    pool, *parts = ((HEADERS / f"weft_{name}.c").read_text() for name in names)
    texts = {"weft_pool": f"{flavour}\n{pool}", "weft_runtime": "\n".join((flavour, *parts))}
    library = ctypes.CDLL(str(tools.shared("".join(texts.values()), texts, {})[0]))
    _loaded.append(library)
    library.weft_runtime_table.restype = ctypes.c_void_p
    library.weft_runtime_table.argtypes = [ctypes.c_ssize_t, *[ctypes.c_void_p] * len(SYMBOLS)]
    return library.weft_runtime_table(tuple.__basicsize__, *(symbols or (None,) * len(SYMBOLS)))


def builtin(method: str, own: Any) -> Any:
    """A function of Python's that weft_runtime.c has, once that is loaded; `own` is its `self`."""
    made = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    at = ctypes.cast(_loaded[0][method], ctypes.c_void_p)
    return made(("PyCFunction_NewEx", ctypes.pythonapi))(at, own, None)


def quicken(kind: type, names: tuple[Any, ...]) -> None:
    """Have instances of a class called by weft_calls.c, once that is loaded, instead of `__call__`.

    Dynamo, and whoever asks for `__call__`, finds that in Python as before.
    """
    if _loaded and kind not in _quick:
        _quick.add(kind)
        words = kind.__class__.__basicsize__ // ctypes.sizeof(ctypes.c_void_p)
        given = ctypes.py_object(kind), ctypes.c_ssize_t(words), ctypes.py_object(names)
        make = ctypes.PYFUNCTYPE(ctypes.c_int, *map(type, given))
        make(("weft_runtime_quicken", _loaded[0]))(*given)


def openmp_symbols() -> tuple[int, ...] | None:
    """The entry points of the OpenMP runtime torch has loaded; None when it has none of this kind.

    LLVM's and Intel's runtimes answer to GNU's names too.
    """
    for path in openmp_libraries():
        try:
            library = ctypes.CDLL(str(path))
            found = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in SYMBOLS]
        except (OSError, AttributeError):
            continue
        return tuple(address.value or 0 for address in found)
    return None


def openmp_libraries() -> list[Path]:
    """OpenMP runtimes mapped into this process, the one beside torch first."""
    pattern = re.compile(r"/lib(gomp|iomp5|omp)\b[^/]*$")
    beside = Path(torch.__file__).parent / "lib"
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []  # no Linux: weft's own pool
    mapped = {line.split(maxsplit=5)[-1] for line in lines if pattern.search(line)}
    return sorted((Path(path) for path in mapped), key=lambda path: (path.parent != beside, path))
