"""Seeds far above the others of their row, as a plateau of the loss leaves them: marked, and left in means and tests.

One such seed widens its row's interval beyond use for any test, and nothing but a look at the seeds tells it from a row
that is noisy throughout. Whether it stayed on a plateau, its curve says: where seeds agree closely, 3 % are far. A seed
is marked if its log PPL is more than `FAR` median absolute deviations above the median of its row. Of 3 seeds the
deviation is often tiny by chance, so it is taken as no smaller than the study's, the median of its rows': of normal
noise 2 to 6 % of rows are marked then at 3 to 8 seeds, not 9 to 15 %, and of seeds that are 10 standard deviations up
60 to 90 %.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from lightning_tfm.report.summary import SummaryRow

FAR = 5.0
LEAST = 3
"""seeds of a row needed for a median"""
MANY = 3
"""rows in which a seed is far above, from where on it is said once"""
NAMED = 4
"""others that are named"""


def outlier_seeds(log_ppl: Mapping[str, Mapping[int, float]]) -> dict[str, list[int]]:
    """row -> its seeds far above its median. `log_ppl`: row -> seed -> log PPL."""
    rows = {row: seeds for row, seeds in log_ppl.items() if len(seeds) >= LEAST}
    middle = {row: median(seeds.values()) for row, seeds in rows.items()}
    spread = {row: median(abs(x - middle[row]) for x in seeds.values()) for row, seeds in rows.items()}
    typical = median(spread.values()) if spread else 0.0
    limit = {row: FAR * max(spread[row], typical) for row in rows}
    return {row: [s for s, x in seeds.items() if x - middle[row] > limit[row] > 0] for row, seeds in rows.items()}


def outlier_clauses(rows: Sequence[SummaryRow]) -> list[str]:
    """Clauses on all of them, a seed that is far above in `MANY` rows or more in its own clause."""
    by_seed: dict[int, list[str]] = {}
    for row in rows:
        for seed in row.far_above:
            by_seed.setdefault(seed, []).append(row.called)
    many = {seed: names for seed, names in by_seed.items() if len(names) >= MANY}
    clauses = [f"seed {seed} is far above the others in {len(names)} rows" for seed, names in many.items()]
    rest = [f"{seed} of {name}" for seed, names in by_seed.items() if seed not in many for name in names]
    if rest:
        single = len(rest) == 1
        more = f" and {len(rest) - NAMED} more" * (len(rest) > NAMED)
        lie = "is far above the others of its row" if single else "are far above the others of their rows"
        clauses.append(f"seed{'s' * (not single)} {', '.join(rest[:NAMED])}{more} {lie}")
    return clauses
