"""Python's collector of cycles, paused while many objects are made that stay.

with uncollected():
    import torch._dynamo        # a third faster
    with collected():
        subprocess.run(["gcc"])     # other threads run meanwhile
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_pauses = 0  # so many blocks have paused it that have not ended


@contextmanager
def uncollected() -> Generator[None]:
    """Without the collector of cycles: each time, it would read all that torch has made.

    What tracing and passes make is in use until their end, some 7 MB more at a model's.
    """
    global _pauses
    if not gc.isenabled():  # by the program, or by a block around this one
        yield
        return
    gc.disable()
    _pauses += 1
    try:
        yield
    finally:  # where another thread compiles that block began later: it goes on with the collector
        _pauses -= 1
        gc.enable()


@contextmanager
def collected() -> Generator[None]:
    """With the collector, where `uncollected` has paused it: for as long as the C compiler runs."""
    if not _pauses:
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        if _pauses:
            gc.disable()
