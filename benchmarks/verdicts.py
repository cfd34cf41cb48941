"""How often the report is wrong: simulated studies without a difference, with planted ones, and what intervals cover.

    python benchmarks/verdicts.py > benchmarks/results/verdicts.txt        (two minutes on one thread)

A study: base and R rows, two metrics (independent: the worst case for false verdicts), n seeds, S sentences. In units
of the standard deviation of one training (sd 1): half of its variance comes from the sentences of the test set (`own`),
half from training; `shared` sentence noise, the same for all seeds of a row, has sd 0 or 0.5. Unequal: each row's sd is
drawn log-uniformly between 1/2 and 2. Bootstrap variances are replaced by what they converge to. These shares of noise
are assumed. Measured on the miniature (experiments/results/miniature/five-seeds.json, sd over 5 seeds of log PPL and
BLEU; sentences are in it): base 0.033 and 1.6, P-none 0.009 and 0.7, C-dmodel256 0.070 and 4.6, C-dmodel1024 0.011 and
1.1, C-dff1024 0.035 and 1.2. So rows differ up to a factor 3.2 either way from their geometric mean, base 1.1 to 1.4
times it: more than the factor 2 of the A/A table, about the last section's factor 3. In table.json there, 3 seeds of
C-N8 (0.31 and 15.8) and D-Pdrop0.2 (0.25 and 12.4) are noisier still, 7 to 10 times base: no study here is simulated
with rows so far apart. The code that decides is the report's own (report/statistics.py, sequential.py).
"""

import argparse
from collections.abc import Iterator

import numpy as np
from scipy import stats

from lightning_tfm.report import statistics as ours
from lightning_tfm.report.sequential import Plan
from lightning_tfm.report.statistics import ALPHA, Differences, SentenceNoise, compare, holm, open_level

S = 60
"""sentences; fewer than a real text has, which only makes the sentence noise harder to know"""
CHUNK = 250


def studies(rng, rows: int, n: int, unequal: bool, shared: float, own: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """(training part [C, R, n], sentence part [C, R, n, S]) of CHUNK studies without a difference; base first."""
    sd = np.exp(rng.uniform(-np.log(2), np.log(2), (CHUNK, rows + 1))) if unequal else np.ones((CHUNK, rows + 1))
    a = rng.standard_normal((CHUNK, rows + 1, n), dtype=np.float32) * (sd * np.sqrt(1 - own))[..., None]
    e = rng.standard_normal((CHUNK, rows + 1, n, S), dtype=np.float32)
    e *= (sd * np.sqrt(own * S)).astype(np.float32)[..., None, None]
    if shared:
        e += rng.standard_normal((CHUNK, rows + 1, 1, S), dtype=np.float32) * np.float32(shared * np.sqrt(S / 2))
    return a, e


def judged(a: np.ndarray, e: np.ndarray, n: int) -> Differences:
    """The report's comparison on the first n seeds."""
    a, e = a[:, :, :n], e[:, :, :n]
    y = a + e.mean(-1)
    centred = e - e.mean(-1, keepdims=True)
    own = centred.var(2, ddof=1).sum(-1) / (S - 1) / S
    mean = centred.mean(2)
    whole = ((mean - mean[:, :1]) ** 2).sum(-1) / (S - 1) / S
    shared = np.maximum(whole - own / n - own[:, :1] / n, 0)
    shared[:, 0] = 0
    y = y.astype(float)
    return compare(y.mean(-1), y.var(-1, ddof=1), np.full(a.shape[1], n), SentenceNoise(shared, own), S)


def pairs(seed: int, N: int, *how) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Both metrics of N studies, in chunks."""
    rng = np.random.default_rng(seed)
    for _ in range(N // CHUNK):
        yield [studies(rng, *how), studies(rng, *how)]


def false_verdicts(both: list[Differences], level: float) -> np.ndarray:
    """Whether each study holds any rejection at `level` (Holm over rows and metrics)."""
    return (holm(np.concatenate([d.p for d in both], -1)) < level).any(-1)


def share(hits: np.ndarray) -> str:
    k, N = int(hits.sum()), len(hits)
    found = stats.binomtest(k, N).proportion_ci(0.95, "exact")
    word = "ok" if found.low <= ALPHA else "TOO MANY"
    return f"{100 * k / N:5.2f} % [{100 * found.low:.2f}, {100 * found.high:.2f}] {word}"


def null_studies(N: int, plan: Plan) -> None:
    print(
        f"A/A: any false verdict in {N} studies at fixed seeds and with --seeds auto ({plan.first} to {plan.budget});"
    )
    print("coverage of the 95 % intervals at fixed seeds, and of the repeated intervals of the last look\n")
    print("rows  n  noise of rows  shared  fixed seeds                  coverage")
    for rows in (5, 19):
        for unequal in (False, True):
            for shared in (0.0, 0.5):
                hits: dict[object, list[np.ndarray]] = {3: [], 5: [], "auto": []}
                covered: dict[object, list[float]] = {3: [], 5: [], "auto": []}
                for both in pairs(rows + 7 * unequal, N, rows, plan.budget, unequal, shared):
                    looks = {n: [judged(a, e, n) for a, e in both] for n in plan.sizes}
                    for n in (3, 5):
                        hits[n].append(false_verdicts(looks[n], ALPHA))
                        covered[n].append(coverage(looks[n], ALPHA))
                    parts = zip(plan.sizes, plan.shares, strict=True)
                    hits["auto"].append(np.any([false_verdicts(looks[n], ALPHA * part) for n, part in parts], axis=0))
                    covered["auto"].append(coverage(looks[plan.budget], ALPHA * plan.shares[-1]))
                for n in (3, 5, "auto"):
                    said = f"{rows:4} {n:>4}  {'unequal' if unequal else 'equal':13}  {shared:6}"
                    print(f"{said}  {share(np.concatenate(hits[n])):35}  {100 * np.mean(covered[n]):.2f} %", flush=True)


def coverage(both: list[Differences], level: float) -> float:
    return float(np.mean([((lo < 0) & (0 < hi))[..., 1:].mean() for lo, hi in (d.interval(level) for d in both)]))


def planted(N: int) -> None:
    print(f"\nPower: a difference planted in one row and metric of {N} studies, others none, equal noise, shared 0")
    print("smallest: what the report prints as findable with 80 %, median and 5-95 % of studies; true: what is\n")
    print("rows   n   0.5 sd (%)  1 sd  2 sd  4 sd   smallest (median, 5-95 %)    true   ratio")
    for rows in (5, 19):
        for n in (3, 5, 8):
            gaps, smallest = [], []
            for both in pairs(100 + rows, N, rows, n, False, 0.0):
                first, second = (judged(a, e, n) for a, e in both)
                adjusted = holm(np.concatenate([first.p, second.p], -1))
                level = open_level(adjusted)[..., 0]
                smallest.append(first.smallest(level[:, None])[:, 1])
                # rejected for a planted d where |estimate + d| / se passes the first step of Holm
                limit = stats.t.isf(ALPHA / (4 * rows), first.df[:, 1]) * first.se[:, 1]
                gaps.append(limit - first.estimate[:, 1])
            gap, said = np.concatenate(gaps), np.concatenate(smallest)
            true, middle = np.quantile(gap, ours.POWER), np.median(said)
            power = "  ".join(f"{100 * (gap < d).mean():5.1f}" for d in (0.5, 1, 2, 4))
            spread = "-".join(f"{q:.2f}" for q in np.quantile(said, [0.05, 0.95]))
            ok = "ok" if abs(middle / true - 1) <= 0.2 else "OFF"
            print(f"{rows:4} {n:3}   {power}   {middle:.2f} ({spread})   {true:.2f}   {middle / true:.2f} {ok}")


NOISES = ("within a factor 2", "within a factor 3", "base three times the rows'")


def noise_of_rows(rng, kind: str, N: int, rows: int) -> np.ndarray:
    """sd of each row, [N, metrics, R, 1]."""
    if kind == NOISES[2]:
        sd = np.ones((N, 2, rows + 1, 1))
        sd[:, :, 0] = 3
        return sd
    width = np.log(2 if kind == NOISES[0] else 3)
    return np.exp(rng.uniform(-width, width, (N, 2, rows + 1, 1)))


def choice_of_prior(N: int) -> None:
    print(f"\nPRIOR_DF (d_0) under unequal noise of seeds alone, {N} studies: any false verdict / coverage of 95 %")
    print("d_0=0: every row by its own seeds (Welch); d_0=inf: all rows pooled\n")
    rng = np.random.default_rng(5)
    for kind in NOISES:
        print(f"sd {kind}")
        for rows, n in ((5, 3), (19, 3), (5, 5), (19, 5)):
            y = rng.normal(size=(N, 2, rows + 1, n)) * noise_of_rows(rng, kind, N, rows)
            mean, variance = y.mean(-1), y.var(-1, ddof=1)
            zeros = SentenceNoise(np.zeros(rows + 1), np.zeros(rows + 1))
            words = []
            for prior in (0.0, 2.0, 3.0, 4.0, 1e9):
                chosen, ours.PRIOR_DF = ours.PRIOR_DF, prior
                found = compare(mean, variance, np.full(rows + 1, n), zeros)
                ours.PRIOR_DF = chosen
                false = 100 * (holm(found.p.reshape(N, -1)) < ALPHA).any(-1).mean()
                name = "inf" if prior > 100 else f"{prior:g}"
                words.append(f"{name}: {false:5.2f} / {100 * coverage([found], ALPHA):.1f} %")
            print(f"{rows:4} rows, {n} seeds:  " + "   ".join(words), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    N = parser.parse_args().studies
    null_studies(N, Plan())
    planted(N)
    choice_of_prior(N)


if __name__ == "__main__":
    main()
