"""How often a tuned study is wrong: A/A studies whose rows choose their rate at n_t tuning seeds (row_tuning.py).

    python -m benchmarks.tuned > benchmarks/results/tuned.txt        (some minutes on one thread)
    python -m benchmarks.tuned --seed 2611 --studies 300 > benchmarks/results/tuned-fresh.txt

A study: base and R rows without a difference, V rates an octave apart, whose log PPL is c (log2 rate - x)^2 in
standard deviations of one training; n reported seeds. Measured on base of the miniature: c = 3.6, x = 0.2 (three
rates: 2.305, 2.105, 2.186). Beside it flatter responses, and an optimum nearer to the middle of two rates, or rows with
unequal noise (sd log-uniform between 1/3 and 3). What decides is the report's own: compare, choice, and the correction
by Benjamini and Hochberg.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.machine import of_today
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, SentenceNoise, compare, prior_df
from lightning_tfm.study.row_tuning import TunedRow, TuningSummary

SEED = 24
RESPONSES = [(3.6, 0.2, False), (3.6, 0.35, False), (3.6, 0.0, False), (1.5, 0.0, False), (1.5, 0.25, False)]
RESPONSES += [(0.7, 0.0, False), (3.6, 0.25, True)]
"""(c, x, whether the rows' noise is unequal)"""


@dataclass(frozen=True)
class Kind:
    """Of studies."""

    tuning_seeds: int
    rows: int
    rates: int
    seeds: int


def kinds() -> list[Kind]:
    varied = [Kind(n_t, rows, 3, 5) for n_t in (1, 2, 3, 5) for rows in (4, 21)]
    return (
        varied + [Kind(3, rows, rates, 5) for rates in (2, 5) for rows in (4, 21)] + [Kind(3, r, 3, 3) for r in (4, 21)]
    )


def study(rng: np.random.Generator, kind: Kind, c: float, at: float, unequal: bool) -> tuple[bool, bool, float]:
    """(a false row without the choice's error, with it, mean ratio of the half-widths)."""
    R = kind.rows + 1
    octaves = np.arange(kind.rates) - (kind.rates - 1) / 2
    f_V = c * (octaves - at) ** 2
    sd_R1 = np.exp(rng.uniform(-np.log(3), np.log(3), (R, 1))) if unequal else np.ones((R, 1))
    unit = 0.018  # of log PPL: that of the miniature's base
    tried = f_V + sd_R1 * rng.standard_normal((R, kind.rates)) / np.sqrt(kind.tuning_seeds)
    taken_R = tried.argmin(1)
    y = unit * ((f_V - f_V.min())[taken_R, None] + sd_R1 * rng.standard_normal((R, kind.seeds)))
    names = ["base", *map(str, range(1, R))]
    values = [float(v) for v in 2**octaves]
    ppl_RV = np.exp(unit * tried)
    rows = [
        TunedRow(name, values[taken], dict(zip(map(str, values), map(float, ppl), strict=True)))
        for name, taken, ppl in zip(names, taken_R, ppl_RV, strict=True)
    ]
    tuning = TuningSummary("training.lr_factor", values, list(range(kind.tuning_seeds)), "", None, None, None, rows)
    chosen = row_tuning.row_choices(tuning, dict(zip(names, y.tolist(), strict=True)))
    n_R, variance_R, zero_R = np.full(R, kind.seeds), y.var(1, ddof=1), np.zeros(R)
    prior = prior_df(variance_R[None], n_R - 1)
    d = compare(y.mean(1), variance_R, n_R, SentenceNoise(zero_R, zero_R), np.inf, prior)
    wide = row_tuning.add_selection_error(d, np.array([chosen[name].loss for name in names]))
    before, after = (bool((benjamini_hochberg(x.p) < ALPHA).any()) for x in (d, wide))
    half, half_before = (stats.t.isf(ALPHA / 2, x.df[1:]) * x.se[1:] for x in (wide, d))
    return before, after, float((half / half_before).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    N, seed = options.studies, options.seed
    print(f"benchmarks/tuned.py --studies {N}, seed {seed}; {of_today()}")
    error = 196 * np.sqrt(ALPHA * (1 - ALPHA) / N)
    print(
        f"\nStudies of {N} with any false row, % (5 is known within ± {error:.1f}); width: over half-widths without\n"
    )
    print("tuning seeds  rows  rates  seeds     c     x  noise       before  with the choice   width")
    worst: dict[Kind, tuple[float, float]] = {}
    for i, kind in enumerate(kinds()):
        for k, (c, at, unequal) in enumerate(RESPONSES):
            rng = np.random.default_rng([seed, i, k])
            results = np.array([study(rng, kind, c, at, unequal) for _ in range(N)])
            before, after, width = 100 * results[:, 0].mean(), 100 * results[:, 1].mean(), results[:, 2].mean()
            of = f"{kind.tuning_seeds:12}  {kind.rows:4}  {kind.rates:5}  {kind.seeds:5}"
            noise = "unequal" if unequal else "equal"
            print(f"{of}  {c:4.1f}  {at:4.2f}  {noise:9} {before:8.1f}  {after:15.1f}  {width:6.2f}", flush=True)
            highest = worst.get(kind, (0.0, 0.0))
            worst[kind] = (max(highest[0], before), max(highest[1], after))
    print("\nhighest of each kind: before, with the choice")
    for kind, (before, after) in worst.items():
        print(f"{kind.tuning_seeds} tuning seeds, {kind.rows} rows, {kind.rates} rates, {kind.seeds} seeds:", end=" ")
        print(f"{before:.1f}, {after:.1f}")


if __name__ == "__main__":
    main()
