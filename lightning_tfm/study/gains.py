"""What a search gained over its base, in words."""

from collections.abc import Mapping, Sequence

BASE = "base"
"""name of a search's first run, and of a table's first row"""


def gains(
    objectives: Mapping[str, str], based: bool, base: Sequence[float | None] | None, best: Mapping[str, Sequence[float]]
) -> list[str]:
    """One phrase for each of the best trials (name -> values): by how much it beats base in each objective.

    `based`: base is among the search's runs; `base`: its values, None while it has none.
    """
    if not based:
        return ["begun before base was the first run of a search: there is no base to compare with"]
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
            share = f" ({abs(gain / theirs):.1%})" if theirs else ""
            verb = "better" if gain > 0 else "worse" if gain < 0 else "different"
            parts.append(f"{aim} {abs(gain):.4g}{share} {verb} than base's {theirs:.4g}")
        said.append(f"{name}: {', '.join(parts)}")
    return said
