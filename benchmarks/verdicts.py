"""How often the report is wrong: simulated studies without a difference, with planted ones, and what intervals cover.

    python benchmarks/verdicts.py > benchmarks/results/verdicts.txt        (some minutes on one thread)

A study: base and R rows, two metrics (independent: the worst case for false verdicts), n seeds, S sentences. Noise of
sentences as measured on the miniature (5 rows at 5 seeds and 20 rows at 3, 500 sentences; it differs little between
rows, so it is the same for all): of the variance of one training of base 6 % in log PPL and 23 % in BLEU are sentences
(`OWN`); `shared` sentence noise, the same for all seeds of a row, has sd 0.1 and 0.3 of base's (`SHARED`), or 0.
Bootstrap variances are replaced by what they converge to. Standard deviations of the rows:

equal      all alike
factor 3   drawn log-uniformly between 1/3 and 3, base too
measured   as on the miniature at 5 seeds (experiments/results/miniature/table.json): base has its own, the rows
           those of the 19 others (5 drawn from them), the same row in both metrics; from 0.007 to 0.27 in log PPL,
           from 0.8 to 11 in BLEU. Estimates from 5 seeds spread more than what they estimate, so this is harder than
           the truth.
base 3     base three times as noisy as every row: beyond what was measured, where base lies in the middle of its rows

`--seeds auto` is run as the report does it (report/sequential.py): after the look at 3 seeds a row with a verdict in
both metrics gets no more seeds, the others and base one more each time. The code that decides is the report's own.
"""

import argparse
import json
import math
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy
from scipy import stats

from lightning_tfm.report import statistics as ours
from lightning_tfm.report.sequential import Plan
from lightning_tfm.report.statistics import ALPHA, Differences, SentenceNoise, compare, holm, open_level, prior_df

S = 200
"""sentences; fewer than a real text has, which only makes the sentence noise harder to know"""
OWN = (0.06, 0.23)
SHARED = (0.1, 0.3)
CHUNK = 125
KINDS = ("equal", "factor 3", "measured", "base 3")
REQUIRED = KINDS[:3]
TABLE = Path(__file__).resolve().parent.parent / "experiments" / "results" / "miniature" / "table.json"


def measured(path: Path = TABLE) -> np.ndarray:
    """sd of log PPL and BLEU over seeds of every row of our miniature, base first, each over base's: [2, rows]."""
    rows = sorted(json.loads(path.read_text(encoding="utf-8"))["rows"], key=lambda row: not row["base"])
    found = []
    for row in rows:
        ppl, bleu = (list(row[m]["by seed"].values()) for m in ("ppl", "bleu"))
        if len(ppl) > 1:
            found.append((np.std([math.log(x) for x in ppl], ddof=1), np.std(bleu, ddof=1)))
    table = np.array(found).T
    return table / table[:, :1]


def noise_of_rows(rng: np.random.Generator, kind: str, N: int, rows: int, table: np.ndarray) -> np.ndarray:
    """sd of each row, base first: [N, metrics, rows + 1]."""
    match kind:
        case "equal":
            return np.ones((N, 2, rows + 1))
        case "factor 3":
            return np.exp(rng.uniform(-np.log(3), np.log(3), (N, 2, rows + 1)))
        case "measured":
            others = np.argsort(rng.random((N, table.shape[1] - 1)), axis=1) + 1
            drawn = others[:, :rows]
            which = np.concatenate([np.zeros((N, 1), dtype=int), drawn], axis=1)
            return np.moveaxis(table[:, which], 0, 1)
        case "base 3":
            sd = np.ones((N, 2, rows + 1))
            sd[..., 0] = 3
            return sd
    raise ValueError(kind)


Metrics = list[tuple[np.ndarray, np.ndarray]]
"""(training part [N, R, n], sentence part [N, R, n, S]) of each metric, base first"""


def studies(rng: np.random.Generator, sd_NMR: np.ndarray, n: int, shared: bool) -> Metrics:
    """Studies without a difference. `sd_NMR`: of one training, its own sentence noise in it."""
    both = []
    for metric, share in enumerate(OWN):
        variance = sd_NMR[:, metric] ** 2
        own = np.minimum(share, 0.9 * variance)
        N, R = variance.shape
        a = rng.standard_normal((N, R, n), dtype=np.float32) * np.sqrt(variance - own)[..., None]
        e = rng.standard_normal((N, R, n, S), dtype=np.float32)
        e *= np.sqrt(own * S).astype(np.float32)[..., None, None]
        if shared:
            scale = np.float32(SHARED[metric] * np.sqrt(S / 2))
            e += rng.standard_normal((N, R, 1, S), dtype=np.float32) * scale
        both.append((a, e))
    return both


def chunks(seed: int, N: int, rows: int, n: int, kind: str, shared: bool, table: np.ndarray) -> Iterator[Metrics]:
    """N studies."""
    rng = np.random.default_rng([seed, rows, n, KINDS.index(kind), shared])
    for _ in range(N // CHUNK):
        yield studies(rng, noise_of_rows(rng, kind, CHUNK, rows, table), n, shared)


def judged(both: Metrics, n_CR: np.ndarray) -> list[Differences]:
    """The report's comparison of both metrics on the first n_CR[study, row] seeds of each row."""
    parts = []
    for a, e in both:
        have = np.arange(a.shape[2]) < n_CR[..., None]
        count = n_CR[..., None]
        y = np.where(have, a + e.mean(-1), 0.0).astype(float)
        mean = y.sum(-1) / n_CR
        variance = np.where(have, (y - mean[..., None]) ** 2, 0.0).sum(-1) / (n_CR - 1)
        centred = np.where(have[..., None], e - e.mean(-1, keepdims=True), 0)
        typical = centred.sum(2) / count
        spread = np.where(have[..., None], (centred - typical[:, :, None]) ** 2, 0).sum((2, 3))
        own = spread / (n_CR - 1) / (S - 1) / S
        whole = ((typical - typical[:, :1]) ** 2).sum(-1) / (S - 1) / S
        shared = np.maximum(whole - own / n_CR - own[:, :1] / n_CR[:, :1], 0)
        shared[:, 0] = 0
        parts.append((mean, variance, SentenceNoise(shared, own)))
    prior = prior_df(np.stack([variance for _, variance, _ in parts], axis=1), n_CR[:, None] - 1)
    return [compare(mean, variance, n_CR, noise, S, prior) for mean, variance, noise in parts]


def rejected(both: list[Differences], level: float) -> np.ndarray:
    """Which rows and metrics Holm rejects over all of a study, [C, metrics, R]."""
    p = np.stack([d.p for d in both], axis=1)
    return holm(p.reshape(len(p), -1)).reshape(p.shape) < level


def automatic(both: Metrics, plan: Plan) -> tuple[np.ndarray, float, float]:
    """`--seeds auto`: (any false verdict [C], what the last look's intervals cover, seeds spent of the budget)."""
    C, R = both[0][0].shape[:2]
    n_CR, found = np.full((C, R), plan.first), np.zeros((C, 2, R), dtype=bool)
    for look, share in enumerate(plan.shares):
        if look:
            still = ~found.all(1)
            still[:, 0] = still[:, 1:].any(1)  # base goes with the rows that are open
            n_CR = n_CR + still
        last = judged(both, n_CR)
        found |= rejected(last, ALPHA * share)
    return found.any((1, 2)), coverage(last, ALPHA * plan.shares[-1]), float(n_CR.mean() / plan.budget)


def coverage(both: list[Differences], level: float) -> float:
    return float(np.mean([((lo < 0) & (0 < hi))[..., 1:].mean() for lo, hi in (d.interval(level) for d in both)]))


def share(hits: np.ndarray, required: bool) -> str:
    k, N = int(hits.sum()), len(hits)
    found = stats.binomtest(k, N).proportion_ci(0.95, "exact")
    word = "ok" if found.low <= ALPHA else "TOO MANY" if required else "beyond what was asked"
    return f"{100 * k / N:5.2f} % [{100 * found.low:.2f}, {100 * found.high:.2f}] {word}"


def null_studies(N: int, plan: Plan, table: np.ndarray) -> None:
    print(
        f"A/A: any false verdict in {N} studies, with its 95 % interval, at fixed seeds and with --seeds auto", end=""
    )
    print(f" ({plan.first} to {plan.budget});")
    print("coverage of the 95 % intervals (auto: of the last look's, at a narrower level)\n")
    print("rows  n  noise of rows  shared  any false verdict                coverage")
    for rows in (5, 19):
        for kind in KINDS:
            for shared in (False, True):
                for n in (3, 5):
                    hits, covered = [], []
                    for both in chunks(1, N, rows, n, kind, shared, table):
                        found = judged(both, np.full((CHUNK, rows + 1), n))
                        hits.append(rejected(found, ALPHA).any((1, 2)))
                        covered.append(coverage(found, ALPHA))
                    said(rows, n, kind, shared, hits, covered)
                hits, covered, spent = [], [], []
                for both in chunks(2, N, rows, plan.budget, kind, shared, table):
                    hit, cover, part = automatic(both, plan)
                    hits.append(hit), covered.append(cover), spent.append(part)
                said(rows, "auto", kind, shared, hits, covered)


def said(rows: int, n: int | str, kind: str, shared: bool, hits: list[np.ndarray], covered: list[float]) -> None:
    words = f"{rows:4} {n:>4}  {kind:13}  {'yes' if shared else 'no':6}"
    cover = 100 * float(np.mean(covered))
    fine = n == "auto" or kind not in REQUIRED or 93 <= cover <= 97
    counted = share(np.concatenate(hits), kind in REQUIRED)
    print(f"{words}  {counted:35}  {cover:.2f} %{'' if fine else ' OFF'}", flush=True)


def planted(N: int, table: np.ndarray) -> None:
    print(
        f"\nPower: a difference in one row's log PPL in {N} studies, others none, no shared noise; in units of the root"
    )
    print("mean square of the row's and base's sd. smallest: what the report prints as findable with 80 %, median and")
    print("5-95 % of studies; true: what is\n")
    print("rows  n  noise      0.5 sd (%)  1 sd  2 sd  4 sd   smallest (median, 5-95 %)    true   ratio")
    for rows in (5, 19):
        for n in (3, 5, 8):
            for kind in REQUIRED:
                power_of(N, rows, n, kind, table)


def power_of(N: int, rows: int, n: int, kind: str, table: np.ndarray) -> None:
    gaps, smallest = [], []
    rng = np.random.default_rng([3, rows, n, KINDS.index(kind)])
    for _ in range(N // CHUNK):
        sd = noise_of_rows(rng, kind, CHUNK, rows, table)
        first, second = judged(studies(rng, sd, n, False), np.full((CHUNK, rows + 1), n))
        unit = np.sqrt((sd[:, 0, 0] ** 2 + sd[:, 0, 1] ** 2) / 2)
        adjusted = holm(np.concatenate([first.p, second.p], -1))
        smallest.append(first.smallest(open_level(adjusted))[:, 1] / unit)
        # rejected for a planted d where estimate + d passes the first step of Holm
        limit = stats.t.isf(ALPHA / (4 * rows), first.df[:, 1]) * first.se[:, 1]
        gaps.append((limit - first.estimate[:, 1]) / unit)
    gap, told = np.concatenate(gaps), np.concatenate(smallest)
    true, middle = np.quantile(gap, ours.POWER), np.median(told)
    power = "  ".join(f"{100 * (gap < d).mean():5.1f}" for d in (0.5, 1, 2, 4))
    spread = "-".join(f"{q:.2f}" for q in np.quantile(told, [0.05, 0.95]))
    ok = "ok" if abs(middle / true - 1) <= 0.2 else "OFF"
    line = f"{rows:4} {n:2}  {kind:9}  {power}   {middle:.2f} ({spread})"
    print(f"{line:62}   {true:.2f}   {middle / true:.2f} {ok}", flush=True)


def how_cautious(N: int, table: np.ndarray) -> None:
    print(
        f"\nCAUTION, noise of seeds alone, {N} studies: any false verdict / coverage of the 95 % intervals / power to"
    )
    print("find 4 sd. 0: the spread of the rows' variances as estimated; Welch: every row by its own seeds alone\n")
    for kind in KINDS:
        print(kind)
        for rows, n in ((5, 3), (19, 3), (5, 5), (19, 5)):
            rng = np.random.default_rng([4, rows, n, KINDS.index(kind)])
            sd = noise_of_rows(rng, kind, N, rows, table)
            y = rng.normal(size=(N, 2, rows + 1, n)) * sd[..., None]
            mean, variance = y.mean(-1), y.var(-1, ddof=1)
            words = [f"{name}: {tried(mean, variance, n, sd, c)}" for name, c in CHOICES.items()]
            print(f"{rows:4} rows, {n} seeds:  " + "   ".join(words), flush=True)


CHOICES = {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0, "Welch": math.inf}


def tried(mean: np.ndarray, variance: np.ndarray, n: int, sd: np.ndarray, caution: float) -> str:
    N, _, R = mean.shape
    chosen, ours.CAUTION = ours.CAUTION, caution
    prior = np.zeros(N) if math.isinf(caution) else prior_df(variance, np.full(R, n - 1))
    ours.CAUTION = chosen
    zeros = SentenceNoise(np.zeros(R), np.zeros(R))
    found = compare(mean, variance, np.full(R, n), zeros, prior=prior[:, None])
    false = 100 * (holm(found.p.reshape(N, -1)) < ALPHA).any(-1).mean()
    limit = stats.t.isf(ALPHA / (4 * (R - 1)), found.df[:, 0, 1]) * found.se[:, 0, 1]
    unit = np.sqrt((sd[:, 0, 0] ** 2 + sd[:, 0, 1] ** 2) / 2)
    power = 100 * (found.estimate[:, 0, 1] + 4 * unit > limit).mean()
    return f"{false:5.2f} / {100 * coverage([found], ALPHA):.1f} % / {power:3.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    N = parser.parse_args().studies
    table = measured()
    print(f"benchmarks/verdicts.py --studies {N}; python {platform.python_version()}, ", end="")
    print(f"numpy {np.__version__}, scipy {scipy.__version__}; {platform.machine()}, one thread")
    print("CAUTION and CERTAIN were chosen on simulated studies of the kind below, with other random numbers.\n")
    null_studies(N, Plan(), table)
    planted(N, table)
    how_cautious(N, table)


if __name__ == "__main__":
    main()
