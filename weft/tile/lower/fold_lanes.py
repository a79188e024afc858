"""What the lanes of accumulators combine to, of several accumulators together where there are.

fold_lanes(fold, [(acc0,), (acc1,), ..])     # [(extract{0}(v),), (extract{1}(v),), ..]
"""

from functools import partial
from itertools import groupby

from weft.core.node import make
from weft.kernel.ops import Exchange, Extract, Shuffle
from weft.scalar.monoid import Terms
from weft.scalar.nest import Fold

TOGETHER = 4  # accumulators of one vector at most: what is stored from lanes close by is one store


def fold_lanes(fold: Fold, accumulators: list[Terms]) -> list[Terms]:
    """The carriers of every accumulator as scalars."""
    found: list[Terms] = []
    for lanes, same in groupby(accumulators, lambda carriers: carriers[0].type.lanes):
        rest = list(same)
        while lanes > 1 and rest:
            count = min(1 << (len(rest).bit_length() - 1), lanes, TOGETHER)
            found += _together(fold, rest[:count], lanes)
            rest = rest[count:]
        found += rest
    return found


def _together(fold: Fold, group: list[Terms], lanes: int) -> list[Terms]:
    """A power of two of accumulators, each in a lane of one vector in the end.

    Two become one in each step: lanes without the distance's bit are the first's, the others are
    the second's. What then is left of the distances combines lanes of the same accumulator.
    """
    count, distance = len(group), 1
    while distance < count:
        halves = [partial(make, Exchange(distance, half)) for half in (0, 1)]
        pairs = zip(group[::2], group[1::2], strict=True)
        group = [fold.monoid.combine(*(tuple(map(e, *pair)) for e in halves)) for pair in pairs]
        distance *= 2
    (whole,) = group
    while distance < lanes:
        whole = fold.monoid.combine(whole, tuple(make(Shuffle(distance), c) for c in whole))
        distance *= 2
    return [tuple(make(Extract(lane), c) for c in whole) for lane in range(count)]
