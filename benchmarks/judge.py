"""How often `judge` is wrong: simulated studies without a difference, looked at once or at declared numbers of seeds,
and streams of candidates at its gate.

    python -m benchmarks.judge studies > benchmarks/results/judge.txt
    python -m benchmarks.judge looks --seed 3 > benchmarks/results/judge-looks.txt
    python -m benchmarks.judge streams > benchmarks/results/judge-gate.txt     (minutes, on one thread)
    python -m benchmarks.judge streams --seed 2 > benchmarks/results/judge-gate-fresh.txt

The rule is docs/judge-method.md, frozen before the published numbers were drawn; the code that decides is the
package's, over many studies at once. `--seed` gives other numbers.
"""

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.machine import of_today
from benchmarks.verdicts import bound
from lightning_tfm.judging.gate import CANDIDATES, level_shares
from lightning_tfm.report.stats import base_alone
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, Differences, Estimate, SentenceNoise, compare

ITEMS = 500
UNIMODAL = ("accuracy 0.5", "accuracy 0.99", "loss", "t3", "lognormal")
KINDS = (*UNIMODAL, "plateau", "base alone, gap 10", "base alone, gap 30")
"""plateau: one seed in ten of every row lies 10 sd higher; base alone: a seed of base with probability 0.3, its mean
that of the rows all the same"""
ROWS, SEEDS, STUDIES = (4, 20), (5, 8, 12), 2000
LOOKS = ((5, 8), (5, 8, 12), (5, 6, 8, 10, 12))
N_STREAMS, TRUE = 1000, 0.2
OTHERS = ("accuracy 0.99", "t3", "plateau")
"""noises of streams without a true candidate, beside normal ones"""


def runs(rng: np.random.Generator, kind: str, N: int, rows: int, n: int) -> np.ndarray:
    """Scores without a difference in expectation, base first, [N, rows + 1, n]; of one training the sd is 1, but for
    accuracies."""
    shape = (N, rows + 1, n)
    y = rng.standard_normal(shape)
    match kind.split(", gap "):
        case ["accuracy 0.5" | "accuracy 0.99"]:
            return rng.binomial(ITEMS, float(kind.split()[1]), shape) / ITEMS
        case ["t3"]:
            return rng.standard_t(3, shape) / np.sqrt(3)
        case ["lognormal"]:
            return (np.exp(y) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
        case ["plateau"]:
            return y + 10.0 * (rng.random(shape) < 0.1)
        case ["base alone", gap]:
            y[:, 0] += float(gap) * ((rng.random((N, n)) < 0.3) - 0.3)
    return y


def differences(y: np.ndarray) -> Differences:
    R, n = y.shape[-2:]
    return compare(y.mean(-1), y.var(-1, ddof=1), np.full(R, n), SentenceNoise(np.zeros(R), np.zeros(R)))


def judged_false(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(any row of the study has a verdict of a difference, base is said to stand apart), [N]."""
    d, R, n = differences(y), *y.shape[-2:]
    two = base_alone.two_levels(y[:, 0], y.var(-1, ddof=1), np.full(R, n))
    shifted = base_alone.shifted_alike(y.mean(-1), np.broadcast_to(n, y.shape[:-1]), d)
    return np.asarray((benjamini_hochberg(d.p) < ALPHA).any(-1)), two | shifted


def studies(seed: int) -> Iterator[str]:
    yield f"{STUDIES} studies per cell without any difference; false: any row better or worse, in %"
    yield "warned: base is said to stand apart; of false: the same, of the studies with a false row"
    yield ""
    yield f"{'noise':20} rows seeds   false                warned   of false"
    over = []
    for k, kind in enumerate(KINDS):
        for rows in ROWS:
            for n in SEEDS:
                rng = np.random.Generator(np.random.Philox([seed, k, rows, n]))
                false, warned = judged_false(runs(rng, kind, STUDIES, rows, n))
                low, high = bound(false)
                of_false = f"{100 * warned[false].mean():8.0f}" if false.any() else "       –"
                mark = " above 5" if low > ALPHA else ""
                over += [kind] * bool(mark)
                least = bound(warned)[0]
                often = " often" if kind in UNIMODAL and least > 0.05 else ""
                line = f"{kind:20} {rows:4} {n:5}   {100 * false.mean():5.1f} [{100 * low:4.1f}, {100 * high:4.1f}]"
                yield f"{line}{mark:9} {100 * warned.mean():5.1f}{often} {of_false}"
    yield ""
    yield f"cells whose interval lies above 5 %: {len(over)}, {', '.join(sorted(set(over))) or 'none'}"


def judged_false_at(y: np.ndarray, looks: Sequence[int]) -> np.ndarray:
    """Whether any row of the study has a verdict of a difference at each look, [looks, N]: a look reads the first seeds
    of all rows, and its corrected p are divided by its share of the level."""
    hits = [
        (benjamini_hochberg(differences(y[..., :n]).p) / share < ALPHA).any(-1)
        for n, share in zip(looks, level_shares(looks), strict=True)
    ]
    return np.array(hits)


def look_rates(seed: int) -> Iterator[str]:
    yield f"{STUDIES} studies per cell without any difference, looked at as `--looks` declares"
    yield "false: any row better or worse at any of the looks, in %; first: at the first look alone"
    yield ""
    yield f"{'noise':20} rows {'looks':12}  false                 first"
    over = []
    for k, kind in enumerate(KINDS):
        for rows in ROWS:
            for looks in LOOKS:
                rng = np.random.Generator(np.random.Philox([seed, 100 + k, rows, len(looks)]))
                at_look = judged_false_at(runs(rng, kind, STUDIES, rows, looks[-1]), looks)
                false = at_look.any(0)
                low, high = bound(false)
                over += [kind] * (low > ALPHA)
                line = f"{kind:20} {rows:4} {','.join(map(str, looks)):12} {100 * false.mean():5.1f}"
                mark = " above 5" if low > ALPHA else ""
                yield f"{line} [{100 * low:4.1f}, {100 * high:4.1f}]{mark:9} {100 * at_look[0].mean():4.1f}"
    yield ""
    yield f"cells whose interval lies above 5 %: {len(over)}, {', '.join(sorted(set(over))) or 'none'}"


def stream(
    rng: np.random.Generator, kind: str, effect: float, N: int, n: int, policy: str
) -> tuple[np.ndarray, np.ndarray]:
    """(true, false) candidates kept of `CANDIDATES`, [N]. A candidate is base of the moment plus its change: `effect`
    sd better with probability TRUE, else the same; base moves when one is kept, and takes its runs along. Higher is
    better. All rows so far are in the file."""
    mean, variance = np.zeros((N, CANDIDATES + 1)), np.zeros((N, CANDIDATES + 1))
    first = runs(rng, kind, N, 0, n)[:, 0]
    mean[:, 0], variance[:, 0] = first.mean(-1), first.var(-1, ddof=1)
    of_base, kept = np.zeros(N), np.zeros((2, N), dtype=int)
    for t in range(1, CANDIDATES + 1):
        y = runs(rng, kind, N, 0, n)[:, 0]
        true = (rng.random(N) < TRUE) & (effect > 0)
        expected = of_base + np.where(true, effect, 0.0)
        mean[:, t], variance[:, t] = y.mean(-1) + expected, y.var(-1, ddof=1)
        if policy == "mean":
            keep = mean[:, t] > mean[:, 0]
        else:
            zeros = np.zeros(t + 1)
            d = compare(mean[:, : t + 1], variance[:, : t + 1], np.full(t + 1, n), SentenceNoise(zeros, zeros))
            p = Estimate(d.estimate[:, t], d.se[:, t], d.df[:, t]).above(0.0)
            keep = p <= ALPHA / CANDIDATES * (np.maximum(kept.sum(0), 1) if policy == "LOND" else 1)
        kept += keep * np.array([true, ~true])
        of_base = np.where(keep, expected, of_base)
        for x in (mean, variance):  # the kept row becomes base, the old base stays in the file
            x[keep, 0], x[keep, t] = x[keep, t], x[keep, 0]
    return kept[0], kept[1]


def streams(seed: int, N: int) -> Iterator[str]:
    yield f"{N} streams of {CANDIDATES} candidates, which share base's runs; base moves when one is kept; 5 seeds"
    yield f"effect: of the true ones, in sd of one training, {TRUE:.0%} of candidates; 0: there are none"
    yield "any: streams that keep a false one; false: share of the kept that are no better, mean over streams; in %"
    yield ""
    yield f"{'noise':13} {'effect':6} {'rule':10} {'true kept':>9} {'false kept':>10} {'any':>6} {'false':>6}"
    for kind, effect in (*(("loss", e) for e in (0.0, 1.0, 2.0, 3.0)), *((kind, 0.0) for kind in OTHERS)):
        for policy in ("LOND", "alpha/200", "mean") if kind == "loss" else ("LOND",):
            rng = np.random.Generator(np.random.Philox([seed, round(effect), KINDS.index(kind)]))
            true, false = stream(rng, kind, effect, N, 5, policy)
            share = false / np.maximum(true + false, 1)
            numbers = (
                f"{true.mean():9.3f} {false.mean():10.3f} {100 * (false > 0).mean():6.1f} {100 * share.mean():6.2f}"
            )
            low, high = bound(false > 0)
            yield f"{kind:13} {effect:6.0f} {policy:10} {numbers}   any in [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["studies", "looks", "streams"])
    parser.add_argument("--seed", type=int, default=1, help="of the generator [1]")
    parser.add_argument("--streams", type=int, default=N_STREAMS)
    options = parser.parse_args()
    made = {"studies": studies, "looks": look_rates, "streams": lambda seed: streams(seed, options.streams)}
    for line in made[options.what](options.seed):
        print(line, flush=True)
    command = f"python -m benchmarks.judge {options.what} --seed {options.seed}"
    more = f" --streams {options.streams}" if options.what == "streams" else ""
    print(f"\n{of_today()}\n{command}{more}")


if __name__ == "__main__":
    main()
