"""How often the report is wrong: simulated studies without a difference, with planted ones, and with the paper's.

    python -m benchmarks.verdicts > benchmarks/results/verdicts.txt        (some minutes on one thread)

A study: base and 19 rows (the paper's, by name) or 5 (A-h1, A-h32, B-dk16, B-dk32, D-Pdrop0.0), log PPL and BLEU, n
seeds, S sentences. The standard deviation of base is that of our miniature (experiments/results/miniature/table.json).
Noise of sentences as measured there (500 sentences; it differs little between rows, so it is the same for all): of the
variance of one training of base 6 % in log PPL and 23 % in BLEU are sentences (`OWN`); `shared` sentence noise, the
same for all seeds of a row, has a standard deviation of 0.1 and 0.3 of base's (`SHARED`), or 0. Noise of the rows:

equal        all alike, normal
factor 3     standard deviations drawn log-uniformly between 1/3 and 3, base too
factor 30    the same between 1/sqrt(30) and sqrt(30), base in the middle
measured     as on the miniature: base has its own, the rows those of the others (5 drawn from them), the same row in
             both metrics. Estimates from few seeds spread more than what they estimate, so this is harder than truth
t3           Student's t with 3 degrees of freedom
lognormal    exp of a normal, centred: every row's seeds have a long tail upwards
plateau      one training in ten lies 10 standard deviations higher in log PPL and lower in BLEU
correlated   a seed moves all rows alike: correlation 0.7
base 3       base three times as noisy as every row; base / 3: three times quieter

Metrics are independent (but for the plateau): in log PPL alone or in BLEU alone that makes no difference. The code that
decides is the report's own; `--seeds auto` closes rows as the report does.
"""

import argparse
import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.machine import of_today
from lightning_tfm.metrics import METRICS, PRINTED
from lightning_tfm.report.sequential import HOPELESS
from lightning_tfm.report.stats import statistics as ours
from lightning_tfm.report.stats.evidence import conditional_power, may_be_equal
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm
from lightning_tfm.report.stats.statistics import ALPHA, Differences, Estimate, SentenceNoise, compare, prior_df
from lightning_tfm.report.wording import claims
from lightning_tfm.study.rows import all_rows
from lightning_tfm.study.sequential import BUDGET, FIRST, Plan, late

S = 200
"""sentences; fewer than a real text has, which only makes the sentence noise harder to know"""
OWN = np.array([0.06, 0.23])
SHARED = np.array([0.1, 0.3])
CHUNK = 1000
KINDS = ("equal", "factor 3", "factor 30", "measured", "t3", "lognormal", "plateau", "correlated", "base / 3", "base 3")
EXCEPTION = KINDS[-1]
MODES = tuple(f"gap {gap}, {p:g}" for gap in (10, 30) for p in (0.1, 0.3, 0.5))
"""bimodal seeds: a training lies `gap` standard deviations higher with probability p"""
FEW = ("A-h1", "A-h32", "B-dk16", "B-dk32", "D-Pdrop0.0")
TAU = METRICS["ppl"].clear
TABLE = Path(__file__).resolve().parent.parent / "experiments" / "results" / "miniature" / "table.json"


def miniature_sds(path: Path = TABLE) -> np.ndarray:
    """sd of log PPL and BLEU over seeds of every row of our miniature, base first: [2, rows]."""
    rows = sorted(json.loads(path.read_text(encoding="utf-8"))["rows"], key=lambda row: not row["base"])
    sds = []
    for row in rows:
        ppl, bleu = (list(row[m]["by seed"].values()) for m in PRINTED)
        if len(ppl) > 1:
            sds.append((np.std([math.log(x) for x in ppl], ddof=1), np.std(bleu, ddof=1)))
    return np.array(sds).T


def row_names(rows: int) -> list[str]:
    """Of the study's rows but base."""
    return list(FEW) if rows == len(FEW) else [name for name in all_rows() if name != "base"][:rows]


def noise_of_rows(rng: np.random.Generator, kind: str, N: int, rows: int, table: np.ndarray) -> np.ndarray:
    """sd of each row over base's, base first: [N, 2, rows + 1]."""
    sd = np.ones((N, 2, rows + 1))
    match kind:
        case "factor 3":
            return np.exp(rng.uniform(-np.log(3), np.log(3), sd.shape))
        case "factor 30":
            sd[..., 1:] = np.exp(rng.uniform(-np.log(30) / 2, np.log(30) / 2, (N, 2, rows)))
        case "measured":
            others = np.argsort(rng.random((N, table.shape[1] - 1)), axis=1) + 1
            which = np.concatenate([np.zeros((N, 1), dtype=int), others[:, :rows]], axis=1)
            return np.moveaxis((table / table[:, :1])[:, which], 0, 1)
        case "base 3":
            sd[..., 0] = 3
        case "base / 3":
            sd[..., 0] = 1 / 3
    return sd


def training_noise(rng: np.random.Generator, kind: str, N: int, rows: int, n: int) -> np.ndarray:
    """Of unit variance (but for the plateau), [N, 2, rows + 1, n]."""
    shape = (N, 2, rows + 1, n)
    match kind:
        case "t3":
            return rng.standard_t(3, shape) / math.sqrt(3)
        case "lognormal":
            return (np.exp(rng.standard_normal(shape)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
        case "plateau":
            stuck = 10.0 * (rng.random((N, 1, rows + 1, n)) < 0.1)
            return rng.standard_normal(shape) + stuck * np.array([1, -1])[:, None, None]
        case _ if kind in MODES:
            gap, p = map(float, kind.removeprefix("gap ").split(", "))
            stuck = gap * (rng.random((N, 1, rows + 1, n)) < p)
            return rng.standard_normal(shape) + stuck * np.array([1, -1])[:, None, None]
        case "correlated":
            return math.sqrt(0.7) * rng.standard_normal((N, 2, 1, n)) + math.sqrt(0.3) * rng.standard_normal(shape)
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Studies:
    """N studies, base first: what was scored, and what the bootstrap knows of the sentences."""

    y: np.ndarray
    """[N, 2, R, n]"""
    own: np.ndarray
    """variance of one training that is sentences, as estimated, [N, 2, R]"""
    shared: np.ndarray
    """true variance of a difference that all seeds share, [2]"""
    chi: np.ndarray
    """what the bootstrap variance of a difference is estimated with, over its expectation, [N, 2, R]"""
    sd: np.ndarray
    """of one training, [N, 2, R]"""

    def plus(self, effect_R: np.ndarray) -> "Studies":
        return replace(self, y=self.y + effect_R[..., None])


def studies(rng: np.random.Generator, kind: str, N: int, rows: int, n: int, shared: bool, table: np.ndarray) -> Studies:
    """Studies without a difference, in log PPL and BLEU."""
    unit = table[:, 0]
    sd = noise_of_rows(rng, kind, N, rows, table)
    own = np.minimum(OWN[:, None], 0.9 * sd**2)
    y = training_noise(rng, kind, N, rows, n) * np.sqrt(sd**2 - own)[..., None]
    y += rng.standard_normal(y.shape) * np.sqrt(own)[..., None]
    g = SHARED if shared else np.zeros(2)
    y += rng.standard_normal((N, 2, rows + 1, 1)) * (g / math.sqrt(2))[:, None, None]
    known = own * rng.chisquare((n - 1) * (S - 1), own.shape) / ((n - 1) * (S - 1))
    chi = rng.chisquare(S - 1, own.shape) / (S - 1)
    scale = unit[:, None]
    return Studies(y * scale[..., None], known * scale**2, (g * unit) ** 2, chi, sd * scale)


def chunks(seed: int, N: int, rows: int, n: int, kind: str, shared: bool, table: np.ndarray) -> Iterator[Studies]:
    """N studies."""
    rng = np.random.default_rng([seed, rows, n, (*KINDS, *MODES).index(kind), shared])
    for start in range(0, N, CHUNK):
        yield studies(rng, kind, min(CHUNK, N - start), rows, n, shared, table)


def comparisons(some: Studies, n_NR: np.ndarray) -> list[Differences]:
    """The report's comparison of both metrics on the first n_NR[study, row] seeds of each row."""
    have = (np.arange(some.y.shape[-1]) < n_NR[..., None])[:, None]
    count = n_NR[:, None]
    mean = np.where(have, some.y, 0.0).sum(-1) / count
    variance = np.where(have, (some.y - mean[..., None]) ** 2, 0.0).sum(-1) / (count - 1)
    ends = some.own / count + (some.own / count)[..., :1]
    shared = np.maximum((ends + some.shared[:, None]) * some.chi - ends, 0)
    shared[..., 0] = 0
    prior = prior_df(variance, n_NR[:, None] - 1)
    return [
        compare(mean[:, m], variance[:, m], n_NR, SentenceNoise(shared[:, m], some.own[:, m]), S, prior)
        for m in range(2)
    ]


def sides(ppl: Differences, names: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(p for, p against) each claim of the study, [N]."""
    rows = {name: Estimate(ppl.estimate[:, i], ppl.se[:, i], ppl.df[:, i]) for i, name in enumerate(names, 1)}
    return [claims.both_sides(claim, rows) for claim in claims.claims_of(names)]


def false_claims(
    p: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]], names: Sequence[str], level: float
) -> np.ndarray:
    """Studies in which any claim gets a false word where no row differs: then only "as good as base" is true, [N]."""
    wrong = np.zeros(len(p), dtype=bool)
    for k, (claim, (for_it, against)) in enumerate(zip(claims.claims_of(names), pairs, strict=True)):
        true = set(claim.says.values()) == {claims.SAME}
        wrong |= (p[:, k] < level) & ~(true & (for_it < against))
    return wrong


@dataclass(frozen=True)
class Outcome:
    """What was found in N studies."""

    bh: np.ndarray
    """[N, 2, R]"""
    holm: np.ndarray
    claims: np.ndarray
    """any false claim, were there no difference, [N]"""
    last: list[Differences]
    level: float
    """of the last look's intervals"""
    spent: float
    """mean seeds of a row"""

    @property
    def any(self) -> dict[str, np.ndarray]:
        """Whether a study holds a false verdict, were there no difference."""
        hits = {"claims": self.claims}
        for m, name in enumerate(PRINTED):
            hits |= {f"BH {name}": self.bh[:, m].any(-1), f"Holm {name}": self.holm[:, m].any(-1)}
        return hits


def one_look(some: Studies, n: int, names: Sequence[str]) -> Outcome:
    """Seeds fixed beforehand."""
    return looks(some, Plan((n,), (1.0,)), names)


def looks(some: Studies, plan: Plan, names: Sequence[str], hopeless: float = HOPELESS) -> Outcome:
    """`--seeds auto` as the report does it."""
    N, R = some.y.shape[0], some.y.shape[2]
    n, bh, by_holm = np.full((N, R), plan.first), np.zeros((N, 2, R), dtype=bool), np.zeros((N, 2, R), dtype=bool)
    wrong, claim_p = np.zeros(N, dtype=bool), np.ones((N, len(claims.claims_of(names))))
    printed, closed = np.full(R, np.nan), np.zeros((N, R), dtype=bool)
    for look, share in enumerate(plan.shares):
        if look:
            more = ~closed
            more[:, 0] = more[:, 1:].any(1)  # base goes with the rows that are open
            n = np.where(more, plan.sizes[look], n)
        last = comparisons(some, n)
        p = np.stack([d.p for d in last], axis=1)
        bh |= benjamini_hochberg(p) < ALPHA * share
        by_holm |= holm(p) < ALPHA * share
        pairs = sides(last[0], names)
        p_claims = claims.holm_of_claims(pairs)
        wrong |= false_claims(p_claims, pairs, names, ALPHA * share)
        claim_p = np.minimum(claim_p, p_claims / share)
        if look + 1 < len(plan.sizes):
            about = np.zeros((N, R), dtype=bool)
            for k, claim in enumerate(claims.claims_of(names)):
                about[:, [1 + names.index(name) for name in claim.says]] |= (claim_p[:, k] >= ALPHA)[:, None]
            equal = may_be_equal(printed, TAU, True)
            chance = conditional_power(last[0], n, printed, equal, TAU, False, plan.budget, plan.shares[-1])
            closed = (bh[:, 0] & ~(about & ~by_holm[:, 0])) | (chance < hopeless)
    return Outcome(bh, by_holm, wrong, last, ALPHA * plan.shares[-1], float(n[:, 1:].mean()))


def coverage(both: list[Differences], level: float) -> float:
    return float(np.mean([((lo < 0) & (0 < hi))[..., 1:].mean() for lo, hi in (d.interval(level) for d in both)]))


def bound(hits: np.ndarray) -> tuple[float, float]:
    """95 % interval of a rate (Clopper and Pearson)."""
    interval = stats.binomtest(int(hits.sum()), len(hits)).proportion_ci(0.95, "exact")
    return float(interval.low), float(interval.high)


def rate(hits: np.ndarray) -> str:
    return f"{100 * hits.mean():5.2f}{' ' if bound(hits)[0] <= ALPHA else '!'}"


def head(text: str) -> None:
    print("\n" + textwrap.fill(text, 118) + "\n")


def cells() -> Iterator[tuple[int, str, bool]]:
    """(rows, kind, shared) of the studies without a difference."""
    for rows in (len(FEW), 19):
        for kind in KINDS:
            for shared in (False, True) if kind in ("equal", "measured", EXCEPTION) else (True,):
                yield rows, kind, shared


FAMILIES = ("claims", "BH ppl", "BH bleu", "Holm ppl", "Holm bleu")


def null_studies(N: int, plan: Plan, table: np.ndarray) -> None:
    half, at = 196 * math.sqrt(ALPHA * (1 - ALPHA) / N), ", ".join(map(str, plan.sizes))
    head(
        f"A/A: % of {N} studies with any false verdict in a family (a rate of 5 is known within ± "
        f"{half:.1f}), at fixed "
        f"seeds and with --seeds auto (looks at {at} seeds). claims: Holm over the claims of section 6.2; BH, "
        "Holm: over "
        "the rows of one metric. !: the whole 95 % interval lies above 5 %, which is put up with for "
        f"'{EXCEPTION}' alone. coverage: of the 95 % intervals (auto: of the last look's, which are wider)."
    )
    print("rows    n  noise of rows  shared " + "".join(f"{name:>10}" for name in FAMILIES) + "   coverage")
    worst: dict[tuple[str, str, bool], float] = {}
    for rows, kind, shared in cells():
        for n in (3, 5, "auto"):
            outcomes = [
                one_look(some, n, row_names(rows)) if isinstance(n, int) else looks(some, plan, row_names(rows))
                for some in chunks(
                    1 if n == "auto" else 2, N, rows, plan.budget if n == "auto" else int(n), kind, shared, table
                )
            ]
            hits = {name: np.concatenate([outcome.any[name] for outcome in outcomes]) for name in FAMILIES}
            cover = 100 * float(np.mean([coverage(outcome.last, outcome.level) for outcome in outcomes]))
            words = "".join(f"{rate(hits[name]):>10}" for name in FAMILIES)
            print(f"{rows:4} {n:>4}  {kind:13}  {'yes' if shared else 'no':6} {words}   {cover:.1f} %", flush=True)
            for name, hit in hits.items():
                key = (name, "auto" if n == "auto" else "fixed", kind == EXCEPTION)
                worst[key] = max(worst.get(key, 0.0), 100 * float(hit.mean()))
    print("\nhighest of each family, % of studies: fixed seeds / auto; in brackets '" + EXCEPTION + "'")
    for name in FAMILIES:
        plain, except_ = ([worst[name, how, e] for how in ("fixed", "auto")] for e in (False, True))
        print(f"{name:10} {plain[0]:.2f} / {plain[1]:.2f}   [{except_[0]:.2f} / {except_[1]:.2f}]")


def split(y: np.ndarray) -> np.ndarray:
    """Mean over rows of log(largest gap between a row's seeds in log PPL / the mean of its other gaps), [N]."""
    gaps = np.diff(np.sort(y[:, 0], axis=-1), axis=-1)
    largest = gaps.max(-1)
    return np.log(largest / ((gaps.sum(-1) - largest) / (gaps.shape[-1] - 1))).mean(-1)


def plateau_studies(N: int, table: np.ndarray) -> None:
    head(
        f"Bimodal seeds (plateaus), A/A: % of {N} studies with any false word by BH in log PPL or by a claim. A "
        "study-level test for plateaus: the mean over rows of log(largest gap between seeds / mean of the other gaps) "
        "against its 99 % point under lognormal noise, the hardest unimodal one. fires: % of studies that it rejects; "
        "left: with a false word, and not rejected. With 3 seeds no test of the kind keeps both promises (left <= 6, "
        f"fires <= 2 where seeds are unimodal), so a word needs {ours.LEAST}. auto: looks at "
        f"{', '.join(map(str, late(FIRST, BUDGET).sizes))} seeds."
    )
    print("rows    n  noise of rows     false    fires     left")
    for rows in (len(FEW), 19):
        for n in (3, 4, 5, "auto"):
            plan = late(FIRST, BUDGET) if n == "auto" else Plan((int(n),), (1.0,))
            rng = np.random.default_rng([15, rows, plan.budget])
            edge = np.quantile(split(np.exp(rng.standard_normal((20_000, 1, rows + 1, plan.budget)))), 0.99)
            for kind in ("equal", "measured", "t3", "lognormal", "correlated", *MODES):
                hits, fires = [], []
                for some in chunks(16, N, rows, plan.budget, kind, True, table):
                    hit_by = looks(some, plan, row_names(rows)).any
                    hits.append(hit_by["BH ppl"] | hit_by["claims"])
                    fires.append(split(some.y) > edge)
                hit, fire = np.concatenate(hits), np.concatenate(fires)
                words = "".join(f"{100 * x.mean():9.2f}" for x in (hit, fire, hit & ~fire))
                print(f"{rows:4} {n:>4}  {kind:13} {words}", flush=True)


def against(some: Studies, row_N: np.ndarray) -> Studies:
    """The studies with another row in base's place, and base in its: what `--reference` computes."""
    N, _, R, _ = some.y.shape
    order = np.tile(np.arange(R), (N, 1))
    order[np.arange(N), row_N], order[:, 0] = 0, row_N
    own, chi, sd = (np.take_along_axis(x, order[:, None], 2) for x in (some.own, some.chi, some.sd))
    return replace(some, y=np.take_along_axis(some.y, order[:, None, :, None], 2), own=own, chi=chi, sd=sd)


def best_row(some: Studies) -> np.ndarray:
    """The row of the least mean log PPL, [N]."""
    return some.y[:, 0].mean(-1).argmin(-1)


def false_to_reference(N: int, rows: int, n: int, kind: str, table: np.ndarray, chosen: bool) -> dict[str, np.ndarray]:
    """Of each family but the claims: whether a study without a difference holds a false verdict against another row.

    `chosen`: the best row once its scores are seen, instead of one that was named beforehand.
    """
    outcomes = []
    for some in chunks(14, N, rows, n, kind, True, table):
        row_N = best_row(some) if chosen else np.ones(len(some.y), dtype=int)
        outcomes.append(one_look(against(some, row_N), n, row_names(rows)).any)
    return {name: np.concatenate([one[name] for one in outcomes]) for name in FAMILIES[1:]}


def references(N: int, table: np.ndarray) -> None:
    head(
        f"Another reference than base (--reference), A/A: % of {N} studies with any false verdict against it, "
        "fixed seeds. named: a row that was named beforehand; best: the row of the least mean log PPL, chosen once "
        "the scores are seen, which is why the report says that p holds for a reference that was named before."
    )
    print("rows  n  noise of rows  reference " + "".join(f"{name:>10}" for name in FAMILIES[1:]))
    for rows in (len(FEW), 19):
        for kind in KINDS[:-2]:
            for n in (3, 5):
                for chosen in (False, True):
                    hits = false_to_reference(N, rows, n, kind, table, chosen)
                    words = "".join(f"{rate(hit):>10}" for hit in hits.values())
                    print(f"{rows:4} {n:2}  {kind:13}  {'best' if chosen else 'named':9} {words}", flush=True)


def planted_effects(rng: np.random.Generator, some: Studies) -> np.ndarray:
    """Half of the rows without, the others 1 to 6 standard deviations of base off to either side, [N, 2, R]."""
    N, _, R, _ = some.y.shape
    size = rng.uniform(1, 6, (N, R)) * rng.choice([-1, 1], (N, R)) * (rng.random((N, R)) < 0.5)
    size[:, 0] = 0
    return size[:, None] * np.array([1, -1])[:, None]


def discoveries(N: int, plan: Plan, table: np.ndarray) -> None:
    head(
        f"Real effects in half of the rows (1 to 6 standard deviations of base, either way), {N} studies: "
        "false discovery "
        "rate of BH, %: the mean share of rows without an effect among the rows found in log PPL."
    )
    print("rows  noise of rows     3 seeds  5 seeds     auto")
    for rows in (len(FEW), 19):
        for kind in KINDS:
            words = []
            for n in (3, 5, plan.budget):
                rng = np.random.default_rng([7, rows, n, KINDS.index(kind)])
                shares = []
                for some in chunks(7, N, rows, n, kind, True, table):
                    effect = planted_effects(rng, some) * table[:, :1]
                    of = looks(some.plus(effect), plan if n == plan.budget else Plan((n,), (1.0,)), row_names(rows))
                    false = (of.bh[:, 0] & (effect[:, 0] == 0)).sum(-1)
                    shares.append(false / np.maximum(of.bh[:, 0].sum(-1), 1))
                words.append(100 * float(np.concatenate(shares).mean()))
            print(f"{rows:4}  {kind:14} " + "".join(f"{w:9.2f}" for w in words), flush=True)


def paper_effects() -> np.ndarray:
    """The paper's differences to base in log PPL and BLEU, base (0) first: [2, 20]."""
    rows = all_rows()
    base = rows["base"].paper
    printed = [rows[name].paper for name in ["base", *row_names(19)]]
    return np.array([[math.log(p.ppl / base.ppl) for p in printed], [p.bleu - base.bleu for p in printed]])


def true_effects(rng: np.random.Generator, N: int, scale: float) -> np.ndarray:
    """Ours: the paper's times scale times exp(0.4 z); of 30 % of the rows drawn anew, as large but as they like."""
    paper = paper_effects()
    here = scale * paper * np.exp(0.4 * rng.standard_normal((N, 1, paper.shape[1])))
    size = scale * np.sqrt((paper[:, 1:] ** 2).mean(1))
    own = rng.standard_normal((N, 1, paper.shape[1])) * (size * np.array([1, -1]))[:, None]
    mixed = np.where(rng.random((N, 1, paper.shape[1])) < 0.3, own, here)
    mixed[..., 0] = 0
    return mixed


FULL = np.array([[METRICS[m].sigma] for m in PRINTED])
SETTINGS = (
    ("miniature, scale 1, 3 seeds", "measured", 1.0, 3, False),
    ("miniature, scale 1, 5 seeds", "measured", 1.0, 5, False),
    ("miniature, scale 2, 5 seeds", "measured", 2.0, 5, False),
    ("miniature, scale 2, 5 seeds, a plateau", "plateau", 2.0, 5, False),
    ("full size, scale 1, 3 seeds", "equal", 1.0, 3, True),
    ("full size, scale 0.5, 8 seeds", "equal", 0.5, 8, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--references", action="store_true", help="only the part on other references than base")
    parser.add_argument("--plateaus", action="store_true", help="only the part on bimodal seeds")
    parser.add_argument("--null", action="store_true", help="only the studies without a difference")
    options = parser.parse_args()
    N, table = options.studies, miniature_sds()
    if options.references:
        return references(N, table)
    print(f"benchmarks/verdicts.py --studies {N}; {of_today()}")
    if options.plateaus:
        return plateau_studies(N, table)
    if options.null:
        return null_studies(N, late(FIRST, BUDGET), table)
    print("CAUTION and CERTAIN were chosen on simulated studies of the kind below, with other random numbers.\n")
    null_studies(N, late(FIRST, BUDGET), table)
    references(N, table)
    discoveries(N // 4, late(FIRST, BUDGET), table)


if __name__ == "__main__":
    main()
