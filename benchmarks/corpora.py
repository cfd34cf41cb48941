"""How often `meta-analysis` is wrong: simulated studies over corpora in which no row differs from base on average.

    python -m benchmarks.corpora > benchmarks/results/corpora.txt        (a quarter of an hour on one thread)

K corpora, base and 19 rows, n seeds, log PPL; noise of trainings as in benchmarks/verdicts.py. `quiet`: the standard
deviation of a corpus is drawn log-uniformly, the loudest up to so many times the quietest. `tau`: what a row does on a
corpus, normal around 0, in standard deviations of base on our miniature. The code that decides is the command's own.
"""

from itertools import product

import numpy as np

from benchmarks.machine import of_today
from benchmarks.verdicts import KINDS, comparisons, head, miniature_sds, rate, studies
from lightning_tfm.report.across.meta_analysis import random_effects
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, t_sf

ROWS, N = 19, 500


def corpora(K: int, n: int, kind: str, times: int, tau: int) -> dict[str, np.ndarray]:
    """Of N studies: whether any row has a false verdict, and the share of rows whose intervals miss, [N] each."""
    table = miniature_sds()
    rng, spread = np.random.default_rng([K, n, KINDS.index(kind), times, tau]), tau * table[0, 0]
    y, v = np.empty((N, ROWS, K)), np.empty((N, ROWS, K))
    for k in range(K):
        of = comparisons(studies(rng, kind, N, ROWS, n, True, table), np.full((N, ROWS + 1), n))[0]
        scale = times ** rng.uniform(-0.5, 0.5, (N, 1))
        y[..., k] = scale * of.estimate[:, 1:] + spread * rng.standard_normal((N, ROWS))
        v[..., k] = (scale * of.se[:, 1:]) ** 2
    of = {key: np.empty((N, ROWS)) for key in ("p", "with K", "mean", "unseen")}
    new = spread * rng.standard_normal((N, ROWS))
    for at in np.ndindex(N, ROWS):
        e = random_effects(y[at], v[at])
        of["p"][at], of["with K"][at] = e["p"], 2 * t_sf(abs(e["estimate"]) / e["se"], K - 1)
        of["mean"][at] = not e["lower"] < 0 < e["upper"]
        of["unseen"][at] = not e["unseen lower"] < new[at] < e["unseen upper"]
    false = {key: (np.array([benjamini_hochberg(p) for p in of[key]]) < ALPHA).any(1) for key in ("p", "with K")}
    return false | {key: of[key].mean(1) for key in ("mean", "unseen")}


def main() -> None:
    print(f"benchmarks/corpora.py; {of_today()}")
    head(
        f"% of {N} studies with a false verdict on any row (Benjamini and Hochberg), with K_e corpora in the degrees "
        "of freedom as the command has them, and with K; % of rows whose interval misses the mean, and one more corpus."
    )
    print("K  n  noise       quiet  tau    false   with K    mean  unseen")
    for K, n, kind, times, tau in product((3, 4, 6), (3, 5), ("measured", "plateau", "correlated"), (1, 3, 30), (1, 3)):
        of = corpora(K, n, kind, times, tau)
        missed = "".join(f"{100 * of[key].mean():8.1f}" for key in ("mean", "unseen"))
        print(f"{K}  {n}  {kind:10} {times:6} {tau:4}   {rate(of['p'])}   {rate(of['with K'])}{missed}", flush=True)


if __name__ == "__main__":
    main()
