"""How often each verdict word is true: simulated studies whose true differences, and the paper's, are known.

    python -m benchmarks.words > benchmarks/results/words.txt        (some minutes on one thread)

A study is one of benchmarks/verdicts.py: 19 rows beside base, both metrics, noise as named. Our true differences are
the paper's x scale x exp(0.4 z); of 30 % of the rows they are drawn anew, as large but as they like. What the paper
prints is its true difference with the noise of its two single runs. With delta our true difference, Pi the paper's true
one, a word is true where, rules fixed before the first run:

reproduced                          sign(delta) = sign(Pi) and 1/3 < delta / Pi < 3
same direction                      sign(delta) = sign(Pi)
contradicted                        sign(delta) = - sign(Pi)
differs where the paper shows none  delta != 0 has the estimate's sign, and |delta - Pi| > tau / 2
found here, paper unclear           delta has the estimate's sign
smaller than printed                delta in the printed direction is below half of the printed difference
no difference, as in the paper      |delta| <= tau and |Pi| <= 2 tau
better, worse                       delta has that sign (the same rows, as if the paper printed none of them)
practically equal                   |delta| <= tau

undecided cannot be wrong. factor: of rows found with |P| > tau, the median of d / P over delta / P: how much larger the
printed factor is than the true one, by chance and by having been found.
"""

import argparse
from collections import Counter
from dataclasses import dataclass

import numpy as np

from benchmarks.machine import of_today
from benchmarks.verdicts import FULL, SETTINGS, chunks, comparisons, miniature_sds, paper_effects, true_effects
from lightning_tfm.metrics import METRICS, PRINTED
from lightning_tfm.report.stats.evidence import Evidence, significance_fields
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.wording.verdict import judge
from lightning_tfm.report.wording.verdict_words import Verdict

TAU = np.array([METRICS[m].clear for m in PRINTED])


def is_true(word: Verdict, d: float, delta: float, pi: float, printed: float, tau: float) -> bool:
    """Of our true difference and the paper's; `d`: ours as estimated, `printed`: theirs."""
    match word:
        case Verdict.REPRODUCED:
            return delta * pi > 0 and 1 / 3 < delta / pi < 3
        case Verdict.SAME_DIRECTION:
            return delta * pi > 0
        case Verdict.CONTRADICTED:
            return delta * pi < 0
        case Verdict.DIFFERS:
            return delta * d > 0 and abs(delta - pi) > tau / 2
        case Verdict.UNCLEAR | Verdict.BETTER | Verdict.WORSE:
            return delta * d > 0
        case Verdict.SMALLER:
            return bool(delta * np.sign(printed) < abs(printed) / 2)
        case Verdict.NEITHER:
            return abs(delta) <= tau and abs(pi) <= 2 * tau
        case Verdict.EQUAL:
            return abs(delta) <= tau
    return True


@dataclass(frozen=True)
class Said:
    """The words of N studies."""

    counts: list[Counter[tuple[Verdict, bool]]]
    """of each metric: how often a word was said and true, said and false"""
    wrong: np.ndarray
    """studies with any false word, [metric, (beside the paper's numbers, without them)]"""
    factors: list[float]

    def times(self, word: Verdict) -> tuple[int, int]:
        """(said, false) in both metrics."""
        false, true = (sum(one[word, fine] for one in self.counts) for fine in (False, True))
        return false + true, false


def simulate(N: int, kind: str, scale: float, n: int, full_size: bool, table: np.ndarray) -> Said:
    said: list[Counter[tuple[Verdict, bool]]] = [Counter(), Counter()]
    wrong, factors = np.zeros((2, 2)), []
    rng = np.random.default_rng(24)
    for some in chunks(24, N, 19, n, kind, True, np.tile(FULL, 20) if full_size else table):
        M, theirs = len(some.y), paper_effects()
        here = true_effects(rng, M, scale)
        prints = theirs + rng.standard_normal(here.shape) * (TAU / 2)[:, None]
        for m, d in enumerate(comparisons(some.plus(here), np.full((M, 20), n))):
            numbers = significance_fields(d, d.p, prints[:, m], TAU[m], 1.0)
            false = np.zeros((2, M), dtype=bool)
            for i, r in np.ndindex(M, 20):
                if r == 0:
                    continue
                mine = {k: float(x[i, r]) for k, x in numbers.items()}
                e = Evidence(estimate=float(d.estimate[i, r]), n=n, n_base=n, **mine)
                delta, pi, printed = here[i, m, r], theirs[m, r], float(prints[i, m, r])
                for k, paper in enumerate((printed, None)):
                    verdict = judge(e, paper, PRINTED[m], full_size)
                    if k and not (verdict.word.found or verdict.word == Verdict.EQUAL):
                        continue
                    fine = is_true(verdict.word, e.estimate, delta, pi, printed, TAU[m])
                    said[m][verdict.word, bool(fine)] += 1
                    false[k, i] |= not fine
                    if m == 0 and k == 0 and verdict.word.found and abs(printed) > TAU[m] and delta * printed > 0:
                        factors.append(float(e.estimate) / delta)
            wrong[m] += false.sum(1)
    return Said(said, wrong, factors)


def show(name: str, N: int, kind: str, words: Said) -> None:
    said, wrong, factors = words.counts, words.wrong, words.factors
    print(f"\n{name} (noise: {kind}; {N} studies)")
    for word in Verdict:
        parts = []
        for m, metric in enumerate(PRINTED):
            false, true = said[m][word, False], said[m][word, True]
            share = f"{100 * false / (false + true):5.2f} % false" if false + true else "never said   "
            parts.append(f"{metric.upper():4} {(false + true) / N:6.3f} a study, {share}")
        if any(said[m][word, fine] for m in range(2) for fine in (False, True)):
            print(f"  {word.value:34} " + "    ".join(parts))
    rates = " / ".join(f"{100 * x / N:.1f}" for x in (*wrong[:, 0], *wrong[:, 1]))
    print(f"  studies with any false word, %: PPL / BLEU beside the paper's numbers, then without them: {rates}")
    low, high = np.quantile(factors, (0.05, 0.95))
    print(f"  factor: {np.median(factors):.2f} (5-95 %: {low:.2f}-{high:.2f})", flush=True)


def factors_of_planted(N: int, n: int, table: np.ndarray) -> None:
    """d / delta among the rows found, where ten of them differ by two standard deviations of one training."""
    ratio, discoveries = [], 0
    for some in chunks(25, N, 19, n, "equal", False, table):
        signs = 2.0 * (np.arange(20) % 2)
        effect = signs * some.sd[:, :1, :]
        d = comparisons(some.plus(np.concatenate([effect, 0 * effect], axis=1)), np.full((len(some.y), 20), n))[0]
        hit = (benjamini_hochberg(d.p) < ALPHA) & (signs > 0)
        discoveries += hit.sum()
        ratio += (d.estimate[hit] / effect[:, 0][hit]).tolist()
    middle, share = np.median(ratio), 100 * discoveries / (10 * N)
    print(f"  {n} seeds: {share:4.0f} % found, mean factor {np.mean(ratio):.2f}, median {middle:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=500)
    N, table = parser.parse_args().studies, miniature_sds()
    print(f"benchmarks/words.py --studies {N}, seeds 24 and 25; {of_today()}")
    for name, *setting in SETTINGS:
        show(name, N, setting[0], simulate(N, *setting, table))
    print("\nBias of d / P among the rows found: 19 rows, ten of which differ by 2 standard deviations")
    for n in (3, 5):
        factors_of_planted(N, n, table)


if __name__ == "__main__":
    main()
