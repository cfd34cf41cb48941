"""How often effects of fields and comparisons of studies are false: simulated studies in which nothing has an effect.

    python -m benchmarks.effects > benchmarks/results/effects.txt        (some minutes on one thread)

Effects: all combinations of some fields, five seeds each; a family (main effects, or interactions, of one metric) is
false where any of its p, by analyses/factors.py, is below 5 %. Comparisons: two studies of base and 19 or 5
rows, five seeds each; a family is the rows of one metric, corrected as in across/comparison.py. Noise of seeds alone:

equal       all combinations or rows alike, normal
factor 3    standard deviations drawn log-uniformly between 1/3 and 3; factor 30: between 1/sqrt(30) and sqrt(30)
gap 10, p   a training lies 10 standard deviations higher with probability p (a plateau)
first 3     the reference combination, or base, three times as noisy as the others
"""

import argparse
import itertools
import math

import numpy as np

from benchmarks.machine import of_today
from lightning_tfm.report.across.comparison import difference_of
from lightning_tfm.report.analyses import factors
from lightning_tfm.report.analyses.factors import Effect
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA

SEED, SEEDS = 17, 5
KINDS = ("equal", "factor 3", "factor 30", "gap 10, 0.1", "gap 10, 0.3", "gap 10, 0.5", "first 3")


def noise(rng: np.random.Generator, kind: str, R: int) -> np.ndarray:
    """Scores of R rows or combinations, the first one the reference, [R, SEEDS]."""
    e_RS, sd_R = rng.standard_normal((R, SEEDS)), np.ones(R)
    match kind.split():
        case "factor", ratio:
            half = math.log(3) if ratio == "3" else math.log(30) / 2
            sd_R = np.exp(rng.uniform(-half, half, R))
        case "gap", gap, p:
            e_RS += float(gap.rstrip(",")) * (rng.random((R, SEEDS)) < float(p))
        case "first", ratio:
            sd_R[0] = float(ratio)
    return e_RS * sd_R[:, None]


def false_effects(rng: np.random.Generator, kind: str, levels: tuple[int, ...]) -> list[bool]:
    """Whether the main effects, and the interactions, of a study hold a false one."""
    fields = {f"f{i}": list(range(n)) for i, n in enumerate(levels)}
    design = factors.Factorial(fields, {c: str(c) for c in itertools.product(*fields.values())})
    order, y_RS = list(design.rows), noise(rng, kind, math.prod(levels))
    n_R = np.full(len(order), SEEDS)
    v_R, df_R = factors._variances(dict(zip(order, y_RS.tolist(), strict=True)), order, n_R)
    effects = []
    for what, words, coefficients in factors.contrasts(design):
        c_R = np.array([coefficients.get(c, 0.0) for c in order])
        effects.append(
            factors._test_effects(Effect(what, "ppl", words, float(c_R @ y_RS.mean(1))), c_R, v_R / n_R, df_R, n_R)
        )
    p = [(e.kind, e.p) for e in factors._with_p_corrected(effects)]
    return [any(x is not None and x < ALPHA for of, x in p if of == what) for what in ("main", "interaction")]


def false_comparison(rng: np.random.Generator, kind: str, rows: int) -> bool:
    zero_R, n_R = np.zeros(rows + 1), np.full(rows + 1, SEEDS)
    sides = []
    for _ in range(2):
        y_RS = noise(rng, kind, rows + 1)
        d = statistics.compare(y_RS.mean(1), y_RS.var(1, ddof=1), n_R, statistics.SentenceNoise(zero_R, zero_R))
        sides.append(statistics.Estimate(d.estimate[1:], d.se[1:], d.df[1:]))
    first, second = sides
    return bool((benjamini_hochberg(difference_of(second, first).two_sided) < ALPHA).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    N = parser.parse_args().studies
    print(f"benchmarks/effects.py --studies {N}, seed {SEED}; {of_today()}\n")
    error = 196 * math.sqrt(ALPHA * (1 - ALPHA) / N)
    print(f"Families of {N} studies of {SEEDS} seeds with any false p, % (5 is known within ± {error:.1f})\n")
    print("noise          levels 2, 2   2, 2, 2      3, 3        4, 2     comparison of 19 rows   5 rows")
    print("               main, inter   main, inter  main, inter main, inter")
    for k, kind in enumerate(KINDS):
        print(f"{kind:13}", end="")
        for i, levels in enumerate(((2, 2), (2, 2, 2), (3, 3), (4, 2))):
            rng = np.random.default_rng([SEED, k, i])
            main, inter = 100 * np.mean([false_effects(rng, kind, levels) for _ in range(N)], axis=0)
            print(f"{main:7.1f} {inter:5.1f}", end="", flush=True)
        for rows in (19, 5):
            rng = np.random.default_rng([SEED, k, rows])
            print(f"{100 * np.mean([false_comparison(rng, kind, rows) for _ in range(N)]):15.1f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
