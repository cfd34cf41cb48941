"""What a search gained over its base, in words."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance

BASE = "base"
"""name of a search's first run, and of a table's first row"""


BySeed = Mapping[str, Mapping[str, Sequence[float]]]
"""trial -> objective -> its values over the seeds"""


def gains(
    objectives: Mapping[str, str],
    based: bool,
    base: Sequence[float | None] | None,
    best: Mapping[str, Sequence[float]],
    by_seed: BySeed | None = None,
) -> list[str]:
    """One phrase for each of the best trials (name -> values): by how much it beats base in each objective.

    `based`: base is among the search's runs; `base`: its values, None while it has none; `by_seed`: if trials have
    several seeds, from which the gain has an interval.
    """
    if not based:
        return ["started before base was the first run of a search: no base to compare with"]
    if base is None or None in base:
        return ["base has no result yet to compare with"]
    if list(best) == [BASE]:
        return ["no trial beats base"]
    said = []
    for name, values in best.items():
        parts = []
        for (aim, direction), mine, theirs in zip(objectives.items(), values, base, strict=True):
            assert theirs is not None
            gain = theirs - mine if direction == "minimize" else mine - theirs
            share = f" ({100 * abs(gain / theirs):.1f} %)" if theirs else ""
            verb = "better" if gain > 0 else "worse" if gain < 0 else "different"
            parts.append(f"{aim} {abs(gain):.4g}{share} {verb} than base's {theirs:.4g}")
            if by_seed and (found := _interval(*(by_seed[one][aim] for one in (name, BASE)))):
                low, high = sorted((-x for x in found) if direction == "minimize" else found)
                parts[-1] += f", the gain's 95 % interval over these seeds [{low:+z.3g}, {high:+z.3g}]"
        said.append(f"{name}: {', '.join(parts)}")
    if by_seed and best:
        said.append("the best was chosen by these seeds, which flatters it: at others expect less")
    return said


def _interval(mine: Sequence[float], theirs: Sequence[float]) -> tuple[float, float] | None:
    """95 % of the difference of two means, by Welch's t (1947); None if a side has one seed, or neither varies."""
    if min(len(mine), len(theirs)) < 2:
        return None
    from scipy.special import stdtrit

    a, b = variance(mine) / len(mine), variance(theirs) / len(theirs)
    if a + b == 0:
        return None
    df = (a + b) ** 2 / (a**2 / (len(mine) - 1) + b**2 / (len(theirs) - 1))
    gap, half = fmean(mine) - fmean(theirs), -float(stdtrit(df, 0.025)) * math.sqrt(a + b)
    return gap - half, gap + half
