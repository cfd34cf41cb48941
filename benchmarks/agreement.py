"""How often the intervals of the agreement with the paper hold the truth (report/analyses/agreement.py).

    python benchmarks/agreement.py > benchmarks/results/agreement.txt        (some minutes on one thread)

Rows are drawn from a population: our difference, the paper's and the size, normal or t with 3 degrees of freedom (whose
extremes come together), correlated as named before sizes near the middle are made equal, as nine of the paper's 19 rows
have base's size. The truth is the population's rank correlation, of two million rows, less that of the size. Printed:
the share of studies whose interval holds the truth, of that difference (bootstrap over rows) and of our rank
correlation (Bonett and Wright); and how often Williams's test on ranks says p < 0.05, wrongly where that is 0.

Below: what "95 % from training noise" covered, which was printed until November 2026. The miniature's means are taken
for the truth, a study draws new ones around them, and each mean is redrawn around itself.
"""

import argparse
import json
import math
import platform
from datetime import date
from pathlib import Path

import numpy as np
import scipy
from scipy import stats

from lightning_tfm.report.analyses.agreement import less_null, rank_correlation, standard_errors
from lightning_tfm.report.stats.statistics import ALPHA, spearman

SEED = 13
CORRELATIONS = ((0.77, 0.8, 0.6), (0.87, 0.8, 0.7), (0.75, 0.8, 0.75), (0.2, 0.8, 0.3), (-0.45, 0.8, -0.3), (0, 0, 0))
"""ours and the paper's, the size and the paper's, ours and the size"""
TIED = {"normal": 0.63, "t3": 0.76}
"""sizes nearer to 0 are base's: 47 % of the rows"""
MINIATURE = Path(__file__).parents[1] / "experiments/results/miniature/table.json"


def rows(rng: np.random.Generator, R: int, correlations: tuple[float, float, float], kind: str) -> np.ndarray:
    """Ours, the paper's, sizes, [3, R]."""
    ours, size, both = correlations
    x = np.linalg.cholesky([[1, ours, both], [ours, 1, size], [both, size, 1]]) @ rng.standard_normal((3, R))
    if kind == "t3":
        x /= np.sqrt(rng.chisquare(3, R) / 3)
    x[2, np.abs(x[2]) < TIED[kind]] = 0
    return x


def williams(ours: float, size: float, both: float, R: int) -> float:
    """p of two correlations with one variable being equal (Williams 1959; Steiger 1980)."""
    left = 1 - ours**2 - size**2 - both**2 + 2 * ours * size * both
    squared = 2 * (R - 1) / (R - 3) * left + ((ours + size) / 2) ** 2 * (1 - both) ** 3
    t = (ours - size) * math.sqrt((R - 1) * (1 + both) / squared) if squared > 0 else 0.0
    return float(2 * stats.t.sf(abs(t), R - 3))


def study(rng: np.random.Generator, R: int, of: tuple[float, float, float], kind: str, truth: np.ndarray) -> list[bool]:
    less = over = None
    while less is None or over is None:  # sizes that are all base's have no correlation
        ours, paper, size = rows(rng, R, of, kind)
        less, over = less_null(ours, size, paper), spearman(ours, paper)
    pairs = (rank_correlation(a, b) for a, b in ((ours, paper), (size, paper), (ours, size)))
    p = williams(*map(float, pairs), R)
    return [less.low <= truth[0] - truth[1] <= less.high, over[1] <= truth[0] <= over[2], p < ALPHA]


def training_noise(N: int) -> float:
    """Share of studies whose redrawn means cover the rank correlation of the true ones."""
    mine = [row for row in json.loads(MINIATURE.read_bytes())["rows"] if not row["base"]]
    values = [{int(seed): math.log(x) for seed, x in row["ppl"]["by seed"].items()} for row in mine]
    means_R, error_R = np.array([np.mean(list(v.values())) for v in values]), standard_errors(values)
    paper_R = np.array([math.log(row["paper"]["ppl"]) for row in mine])
    truth, rng, held = rank_correlation(means_R, paper_R), np.random.default_rng(SEED), 0
    for _ in range(N):
        found_R = means_R + error_R * rng.standard_normal(len(mine))
        drawn = rank_correlation(found_R + error_R * rng.standard_normal((2000, len(mine))), paper_R)
        low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
        found = rank_correlation(found_R, paper_R)
        held += min(low, found) <= truth <= max(high, found)
    return held / N


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    N = parser.parse_args().studies
    versions = f"python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}"
    error = 196 * math.sqrt(ALPHA * (1 - ALPHA) / N)
    print(f"benchmarks/agreement.py --studies {N}, seed {SEED}; {date.today()}; {versions}; one thread\n")
    print(f"Studies of {N} whose 95 % interval holds the truth, % (95 is known within ± {error:.1f})\n")
    print("rows  ours  size  both  population  difference  covered  Spearman  covered  Williams p < 0.05")
    for i, of in enumerate(CORRELATIONS):
        for kind in TIED:
            ours, paper, size = rows(np.random.default_rng([SEED, i]), 2_000_000, of, kind)
            truth = rank_correlation(np.stack([ours, size]), paper)
            for R in (19, 14, 9):
                rng = np.random.default_rng([SEED, i, R])
                less, over, p = 100 * np.mean([study(rng, R, of, kind, truth) for _ in range(N)], axis=0)
                of_rows = f"{R:4}{of[0]:6}{of[1]:6}{of[2]:6}  {kind:10}"
                print(
                    f"{of_rows}{truth[0] - truth[1]:+12.3f}{less:9.1f}{truth[0]:+10.3f}{over:9.1f}{p:12.1f}", flush=True
                )
    print(f"\n95 % from training noise, as it was: {100 * training_noise(N):.0f} % on the miniature")


if __name__ == "__main__":
    main()
