"""What torch's trace log gets of a compilation, where TORCH_TRACE asks for one: see tlparse."""

# torch has no public name for its trace log.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence

from torch._logging import _internal


def trace(names: Sequence[str], text: Callable[[str], str]) -> None:
    """Add text(name) to the trace, for each name, as an artifact of that name."""
    # torch's handler is there in any case; it has a folder or a file only where one was asked for
    handlers = [
        h for h in _internal.trace_log.handlers if isinstance(h, _internal.LazyTraceHandler)
    ]
    if not any(h.root_dir or h.stream for h in handlers):
        return
    for name in names:
        _internal.trace_structured(
            "artifact",
            metadata_fn=lambda name=name: {"name": f"weft_{name}", "encoding": "string"},
            payload_fn=lambda name=name: text(name),
        )
