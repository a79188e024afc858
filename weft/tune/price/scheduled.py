"""The exact price of a kernel, or of a whole program, under decisions; nothing is measured.

scheduled(kernel, "cpu", {"vectors": "4"})      # Scheduled(text, us ...), or None
Fusing(graph, "cpu", KNOWN, "off")({"inline.x": "no"})     # of the whole program, kernel by kernel
"""

import hashlib
import logging
import math

from weft.core.errors import WeftError
from weft.core.node import Graph
from weft.core.passes import PassLog
from weft.frontend.graph import KNOWN, Known
from weft.levels import Levels, lower
from weft.options import Options, Tune, find_target
from weft.scalar.choices import Chooser
from weft.scalar.nest import Kernel, Program
from weft.scalar.rows import expanded
from weft.targets.cpu import CPU
from weft.tune.database import kernel_key
from weft.tune.price import cpu, gpu
from weft.tune.price.gpu_rates import RATES
from weft.tune.search import Decisions, Met, Scheduled, options_of
from weft.tune.text import write_schedule

logger = logging.getLogger(__name__)


def alone(kernel: Kernel) -> Program:
    """A program of one kernel."""
    return Program("loop", kernel.name, kernel.inputs, kernel.outputs, (kernel,))


def exact_us(levels: Levels, target: str) -> float:
    """The exact price of a program's first kernel; nan where its target has none."""
    machine = find_target(target)
    if isinstance(machine, CPU):
        return cpu.kernel_us(levels.made["tile"].kernels[0], machine)
    if machine.arch not in RATES:
        return math.nan
    return gpu.price(levels.made["kernel"].kernels[0], machine).us


def scheduled(
    kernel: Kernel, target: str, decisions: Decisions, known: Known = KNOWN, tune: Tune = "off"
) -> Scheduled | None:
    """A kernel of the loop level under decisions; None where they do not fit, or it does not."""
    text = write_schedule({kernel.name: decisions})
    try:
        levels = lower(alone(kernel), Options(target, tune=tune, schedule=text), PassLog(), known)
        us = exact_us(levels, target)
    except WeftError:
        return None
    except Exception as error:  # of passes that decisions bring into a case of their own
        logger.warning("left out, and please report it: %r, by\n%s", error, text)
        return None
    (source,) = levels.sources.values()
    met = levels.chooser.kernels[kernel.name].met
    return Scheduled(decisions, options_of(met), source, us, levels)


def fusions_of(chooser: Chooser) -> Met:
    """The choices of a program: those it met, then the fusions that the price declined."""
    declined = dict.fromkeys(chooser.program.declined, (("no", "yes"), "no"))
    return {**declined, **chooser.program.met}


class Fusing:
    """Fuses a graph of the tensor level under decisions; each structure is priced once.

    With `tune` "cached" kernels are as they were tuned, and what is known of the program counts.
    """

    def __init__(self, graph: Graph, target: str, known: Known, tune: Tune) -> None:
        self.graph, self.target, self.known = graph, target, known._replace(fused=True)
        self.tune: Tune = tune
        self.machine, self.prices = find_target(target), dict[str, float]()
        self.name = lower(graph, Options(target, tune=tune), PassLog(), self.known).chooser.name

    def __call__(self, decisions: Decisions) -> Scheduled | None:
        """None where decisions do not fit, or a kernel has no price."""
        text = write_schedule({self.name: decisions})
        options = Options(self.target, tune=self.tune, schedule=text)
        try:
            levels = lower(self.graph, options, PassLog(), self.known)
            met = fusions_of(levels.chooser.checked())
        except WeftError:
            return None
        except Exception as error:  # of fusions that nothing else asks for
            logger.warning("left out, and please report it: %r, by\n%s", error, text)
            return None
        keys = [self.priced(kernel) for kernel in expanded(levels.made["loop"]).kernels]
        us = sum(self.prices[key] for key in keys)
        text = hashlib.sha256("".join(keys).encode()).hexdigest()
        return None if us == math.inf else Scheduled(decisions, options_of(met), text, us)

    def priced(self, kernel: Kernel) -> str:
        """The key of a kernel, which then has a price."""
        key = kernel_key(kernel, self.machine)
        if key not in self.prices:
            known = KNOWN._replace(narrows=self.known.narrows)
            found = scheduled(kernel, self.target, {}, known, self.tune)
            self.prices[key] = math.inf if found is None else found.us
        return key
