"""A study whose rows are all combinations of some fields: what each field is worth, and whether two of them interact.

Let m(a, b, …) be the mean score of a combination over its seeds. The main effect of a level a of one field is the mean
over the other fields of m(a, …) - m(a_0, …), a_0 being base's level, or that of another reference (the first one where
it is not among them); the interaction of levels a and b is the mean of m(a, b) - m(a_0, b) - m(a, b_0) + m(a_0, b_0).
Both are contrasts sum c m:

    Var = sum c^2 v / n + Var(sum c g),    v, n, g: of each combination, as in report/stats/statistics.py

with the seeds' variances v moderated by those of the whole study, and the sentences' part from the paired bootstrap of
the contrast less what the seeds' variances hold of it already; error and degrees of freedom are joined as there. In
each metric the main effects are one family, the interactions another, corrected by Benjamini and Hochberg; an effect of
combinations with fewer seeds than a verdict needs (statistics.LEAST) has only its interval, as have all where seeds
were added by looks at other tests (`--seeds auto`). A main effect names the fields with which it interacts, without a
p those whose interactions have intervals without 0. Where a field changes the pieces or the training text, nll per
reference word replaces log PPL.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from statistics import mean, stdev
from typing import Any

import numpy as np

from lightning_tfm.config import to_dict
from lightning_tfm.metrics import METRICS, PPL
from lightning_tfm.plural_words import interval, signed
from lightning_tfm.report.blocks import NOTHING, Block, Figures, Fold, Main, Notes, Section, Table, columns
from lightning_tfm.report.charts.chart import SMALL, Axis, Chart, Point, Series, draw
from lightning_tfm.report.charts.forest import Entry, Forest, Line
from lightning_tfm.report.charts.study_forest import AXES, axis_of
from lightning_tfm.report.records import Cells
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import corrected_p_values
from lightning_tfm.report.summary import PLAIN, Analysis, Summary
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.study import Ablation

Combination = tuple[Any, ...]
NO_SENTENCES = (0.0, 0.0)
NAMED = 3
"""effects that a sentence names"""


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction, as the metric is tested."""

    kind: str
    """main or interaction"""
    metric: str
    words: list[str]
    """the levels that are compared: of one field, or of both"""
    estimate: float
    lower: float | None = None
    """of the marginal 95 % interval, as is `upper`; None where there are too few seeds"""
    upper: float | None = None
    p: float | None = None
    """corrected over the effects of its kind by Benjamini and Hochberg; None where there are too few seeds, or looks"""
    depends_on: list[str] = field(default_factory=list)
    """of a main effect: fields with which it interacts at p < 0.05, so that it averages over unlike combinations"""


@dataclass(frozen=True)
class FactorSummary:
    """What each field is worth."""

    factors: list[dict[str, Any]]
    """key and levels of each field that the study varies, the reference level first"""
    effects: list[Effect]
    maps: list[dict[str, Any]]
    """of a first and a second field, in a metric: values [level of the first][level of the second], mean over the other
    fields and the seeds as the metric is printed, None where a combination has no run"""


@dataclass(frozen=True)
class Factorial:
    """The fields with their levels, the reference level first, and the row of each combination."""

    levels: dict[str, list[Any]]
    rows: dict[Combination, str]


def factorial(study: Ablation, reference: str | None = None) -> Factorial | None:
    """The study's fields, if its rows are all their combinations and there are two fields at least.

    The levels of the row `reference` come first, by default base's.
    """
    keys = list(dict.fromkeys(key for row in study.rows for key in row.change))
    base = {key: reduce(getitem, key.split("."), to_dict(study.base)) for key in keys}
    first = base | next((row.change for row in study.rows if row.name == reference), {})
    rows: dict[Combination, str] = {}
    for row in study.rows:
        combination = tuple(row.change.get(key, base[key]) for key in keys)
        if row.change or combination not in rows:
            rows[combination] = row.name
    named = [c for c in rows if any(row.name == rows[c] and row.change for row in study.rows)]
    levels = {key: list(dict.fromkeys(c[i] for c in named)) for i, key in enumerate(keys)}
    for key, of_key in levels.items():
        of_key.sort(key=lambda level, key=key: level != first[key])  # type: ignore[misc]
    if len(keys) < 2 or any(len(of_key) < 2 for of_key in levels.values()):
        return None
    every = set(itertools.product(*levels.values()))
    if not every <= rows.keys():
        return None
    return Factorial(levels, {combination: rows[combination] for combination in itertools.product(*levels.values())})


def analyse(cells: Cells, fixed: bool = True) -> FactorSummary | None:
    """Main effects, interactions and the heat maps of two fields; None unless the study is a factorial one.

    `fixed`: whether seeds were fixed beforehand.
    Effects of combinations that have no run yet are left out.
    """
    design = factorial(cells.study, cells.reference)
    if design is None:
        return None
    factors = [{"key": key, "levels": list(map(str, levels))} for key, levels in design.levels.items()]
    metrics = [m for m in cells.metrics if m != PPL.name or not cells.study.by_word]
    effects = [effect for metric in metrics for effect in _effects(cells, design, metric, fixed)]
    maps = [
        {"first": first, "second": second, "metric": metric, "values": _means(cells, design, first, second, metric)}
        for first, second in itertools.combinations(design.levels, 2)
        for metric in metrics
    ]
    return FactorSummary(factors, effects, maps)


def contrasts(design: Factorial) -> list[tuple[str, list[str], dict[Combination, float]]]:
    """(kind, what is compared, coefficient of each combination) of every main effect and interaction of two fields."""
    keys = list(design.levels)
    listed = []
    for key, levels in design.levels.items():
        listed += [("main", [f"{key}: {level} against {levels[0]}"], {key: level}) for level in levels[1:]]
    for first, second in itertools.combinations(keys, 2):
        for a, b in itertools.product(design.levels[first][1:], design.levels[second][1:]):
            words = [f"{key}: {level} against {design.levels[key][0]}" for key, level in ((first, a), (second, b))]
            listed.append(("interaction", words, {first: a, second: b}))
    return [(kind, words, _coefficients(design, keys, levels)) for kind, words, levels in listed]


def _coefficients(design: Factorial, keys: list[str], levels: Mapping[str, Any]) -> dict[Combination, float]:
    others = math.prod(len(design.levels[key]) for key in keys if key not in levels)
    coefficients = {}
    for combination in design.rows:
        sign = 1.0 / others
        for key, level in levels.items():
            own = combination[keys.index(key)]
            sign *= 1.0 if own == level else -1.0 if own == design.levels[key][0] else 0.0
        if sign:
            coefficients[combination] = sign
    return coefficients


def _effects(cells: Cells, design: Factorial, metric: str, fixed: bool) -> list[Effect]:
    runs = {c: cells.of(row) for c, row in design.rows.items()}
    values = {c: [x.value(metric) for x in own] for c, own in runs.items()}
    order = [c for c, own in values.items() if own]
    n_R = np.array([len(values[c]) for c in order])
    v_R, df_R = _variances(values, order, n_R)
    S = next((x.sentences for c in order for x in runs[c]), 0)
    effects = []
    for kind, words, coefficients in contrasts(design):
        if not coefficients.keys() <= set(order):
            continue
        c_R = np.array([coefficients.get(c, 0.0) for c in order])
        mean_R = np.array([mean(values[c]) for c in order])
        noise = _sentences(cells, design, metric, order, c_R)
        effect = Effect(kind, metric, words, float(c_R @ mean_R))
        tested = _test_effects(effect, c_R, v_R / n_R, df_R, n_R, noise, S)
        few = (n_R[c_R != 0] < statistics.LEAST).any()
        effects.append(replace(tested, p=None) if few or not fixed else tested)
    return _with_p_corrected(effects)


def _variances(
    values: Mapping[Combination, list[float]], order: list[Combination], n_R: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(variance of one training, its degrees of freedom) of each combination."""
    variance_R = np.array([stdev(values[c]) ** 2 if len(values[c]) > 1 else 0.0 for c in order])
    return statistics.moderated(variance_R, n_R - 1, statistics.prior_df(variance_R[None], n_R - 1))


def _test_effects(
    effect: Effect,
    c_R: np.ndarray,
    part_R: np.ndarray,
    df_R: np.ndarray,
    n_R: np.ndarray,
    noise: tuple[float, float] = NO_SENTENCES,
    S: float = math.inf,
) -> Effect:
    """With interval and p (not corrected yet), where every combination has two seeds and they differ.

    `part_R`: variance of each mean over seeds; `noise`: see `_sentences`; `S`: sentences.
    """
    used, (shared, own) = c_R != 0, noise
    parts = c_R[used] ** 2 * part_R[used]
    seeds = parts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        df_seeds = seeds**2 / (parts**2 / df_R[used]).sum()
    squared, df = statistics.combine_variances(
        seeds, df_seeds, np.array(shared), np.array(shared + own), (n_R - 1).sum(), S
    )
    if (n_R[used] < 2).any() or not (squared > 0 and df > 0):  # NaN if there is no test
        return effect
    estimate = statistics.Estimate(effect.estimate, np.sqrt(squared), df)
    low, high = estimate.interval()
    return replace(effect, lower=float(low), upper=float(high), p=float(estimate.two_sided))


def _sentences(
    cells: Cells, design: Factorial, metric: str, order: list[Combination], c_R: np.ndarray
) -> tuple[float, float]:
    """Variances of the contrast between test texts: what no number of seeds makes smaller, and what each training has
    on its own; 0 where they are unknown."""
    boots = cells.boots
    if metric not in boots:
        return NO_SENTENCES
    whole, own = 0.0, 0.0
    for c, combination in zip(c_R, order, strict=True):
        runs = [boots[metric][cell.row, cell.seed] for cell in cells.of(design.rows[combination])]
        centred = np.array([run - run.mean() for run in runs])
        whole = whole + c * centred.mean(0)
        if len(runs) > 1:
            own += c * c * float(centred.var(0, ddof=1).mean()) / len(runs)
    return max(float(np.var(whole, ddof=1)) - own, 0.0), own


def _with_p_corrected(effects: list[Effect]) -> list[Effect]:
    """Over the main effects, and over the interactions."""
    corrected: list[Effect] = []
    for kind in ("main", "interaction"):
        family = [effect for effect in effects if effect.kind == kind]
        corrected += [
            replace(effect, p=p) for effect, p in zip(family, corrected_p_values([e.p for e in family]), strict=True)
        ]
    return [replace(effect, depends_on=_depends_on(effect, corrected)) for effect in corrected]


def _depends_on(effect: Effect, effects: list[Effect]) -> list[str]:
    """Fields of the significant interactions that hold a main effect's own comparison."""
    if effect.kind != "main":
        return []
    pairs = [e.words for e in effects if e.kind == "interaction" and stands_out(e)]
    others = [word for words in pairs if effect.words[0] in words for word in words if word != effect.words[0]]
    return list(dict.fromkeys(word.partition(":")[0] for word in others))


def stands_out(effect: Effect) -> bool:
    """By p, or only by the interval if there are too few seeds for a p: a caution, not a verdict."""
    if effect.p is None:
        return effect.lower is not None and effect.upper is not None and effect.lower * effect.upper > 0
    return effect.p < statistics.ALPHA


def _means(cells: Cells, design: Factorial, first: str, second: str, name: str) -> list[list[float | None]]:
    (i, j), metric = map(list(design.levels).index, (first, second)), METRICS[name]

    def mean_of(a: Any, b: Any) -> float | None:
        runs = [cells.of(row) for c, row in design.rows.items() if (c[i], c[j]) == (a, b)]
        return metric.mean([metric.mean([cell.score(metric) for cell in own]) for own in runs]) if all(runs) else None

    return [[mean_of(a, b) for b in design.levels[second]] for a in design.levels[first]]


# --- in words ---


def instead(effect: Effect) -> str:
    """Of a main effect: `norm pre instead of post`."""
    key, _, levels = effect.words[0].partition(": ")
    return f"{field_in_brief(key)} {levels.replace(' against ', ' instead of ')}"


def field_in_brief(words: str) -> str:
    """The field's name in an effect's words, without its section: the plain one where there is one."""
    name = words.partition(":")[0].rpartition(".")[2]
    return PLAIN.get(name, name)


def in_few(effect: Effect) -> str:
    """Of any effect: its fields, with the levels that differ from the first."""
    if effect.kind == "main":
        return instead(effect)
    levels = (words.partition(": ")[2].partition(" against ")[0] for words in effect.words)
    return " × ".join(f"{field_in_brief(words)} {level}" for words, level in zip(effect.words, levels, strict=True))


def _line(effect: Effect) -> str:
    estimate, ends, p = numbers(effect)
    p_words = f", p {p}" if effect.p is not None else f", {p}" if p else ""
    told = f"{METRICS[effect.metric].label}, {' × '.join(effect.words)}: {estimate} {ends}{p_words}"
    return told + (f"; {_unlike(effect)}" if effect.depends_on else "")


def _unlike(effect: Effect) -> str:
    """What to think of a main effect beside interactions."""
    return f"differs with {' and '.join(effect.depends_on)}, read the combinations"


def numbers(effect: Effect) -> tuple[str, str, str]:
    """(estimate, [lower, upper], p or that there are too few seeds for one), of perplexity in percent; the last two
    empty if there is no interval."""

    metric = METRICS[effect.metric]

    def shown(value: float) -> str:
        return f"{signed(metric.in_units(value), metric.difference_digits)}{' %' * metric.log}"

    if effect.lower is None or effect.upper is None:
        return shown(effect.estimate), "", ""
    p = Verdict.UNTESTABLE if effect.p is None else f"{effect.p:.2g}"
    return shown(effect.estimate), interval(effect.lower, effect.upper, shown), p


ABOUT = (
    "a main effect is the mean change over all levels of the other fields; an interaction is by how much two changes "
    "together do more than both alone; p is corrected over the effects of its kind in the metric; where nothing has an "
    "effect, at most 6.0 % of such families hold a false one in simulated studies of five seeds "
    "(benchmarks/results/effects.txt)"
)


def table(summary: FactorSummary) -> Table:
    """Every effect with its interval and p."""
    heads = columns("effect", "of", "metric", "estimate", "95 %", "p (BH)", "", words=["of", "metric", ""])
    return Table("Main effects and interactions", heads, [_row(effect) for effect in summary.effects])


def _row(effect: Effect) -> list[str]:
    told = (cell or NOTHING for cell in numbers(effect))
    beside = _unlike(effect) if effect.depends_on else ""
    return [" × ".join(effect.words), effect.kind, METRICS[effect.metric].label, *told, beside]


# --- in the report ---


def find(cells: Cells, report: Summary) -> FactorSummary | None:
    return analyse(cells.comparable, report.looks is None)


NONE = "No field has a significant effect of its own."


def lead(summary: FactorSummary, report: Summary) -> list[str]:
    """Main effects that stand out in the metric that decides, the largest first, and what they depend on."""
    effects = [e for e in summary.effects if e.metric == report.primary.name]
    if not effects:
        return []
    kinds = [[e for e in effects if e.kind == kind and stands_out(e)] for kind in ("main", "interaction")]
    main, together = (sorted(one, key=lambda e: -abs(e.estimate)) for one in kinds)
    parts = [f"{instead(e)}, {numbers(e)[0]}" for e in main[:NAMED]]
    name = axis_of(report.primary).name
    sentence = f"{name} averaged over the other fields: {'; '.join(parts)}." if parts else NONE
    return [sentence + " But effects differ with the other fields: read the combinations." * bool(together)]


def notes(summary: FactorSummary, report: Summary) -> list[str]:
    """A line for each effect: metric, what is compared, by how much, p."""
    return [_line(effect) for effect in summary.effects]


def sections(summary: FactorSummary, report: Summary) -> list[Section]:
    if not summary.effects:
        return []
    levels = {factor["key"]: factor["levels"] for factor in summary.factors}
    metrics = dict.fromkeys(effect.metric for effect in summary.effects)
    maps = sorted(summary.maps, key=lambda heat_map: list(metrics).index(heat_map["metric"]))
    drawn = [(draw(interaction(of, levels[of["first"]], levels[of["second"]]), SMALL), "") for of in maps]
    parallel = "Mean over seeds and the other fields. Lines are parallel where two fields do not interact."
    blocks: list[Block] = [
        Main(_forest(summary, list(metrics)[:AXES])),
        Figures([figure for figure in drawn if figure[0]], small=True),
        Notes([parallel]),
        Fold("All effects in numbers", [table(summary), Notes([ABOUT])]),
    ]
    return [Section("factors", "The effect of each field", blocks)]


def _forest(summary: FactorSummary, metrics: Sequence[str]) -> Forest:
    """Main effects, then interactions, each in all of these metrics."""
    by_words = {(*e.words, e.metric): e for e in summary.effects}
    lines = [
        Line(
            in_few(e) + ", beyond both alone" * (e.kind == "interaction"),
            [_entry(other) if (other := by_words.get((*e.words, metric))) else None for metric in metrics],
            " × ".join(e.words),
        )
        for e in summary.effects
        if e.metric == metrics[0]
    ]
    axes = [axis_of(METRICS[metric]) for metric in metrics]
    return Forest("The effect of each field", "", axes, lines, to="the first level", here="mean over seeds")


def _entry(e: Effect) -> Entry:
    metric = METRICS[e.metric]
    lower, upper = (None if v is None else metric.in_units(v) for v in (e.lower, e.upper))
    side = Verdict.BETTER if metric.better(e.estimate) else Verdict.WORSE
    word = side if stands_out(e) else Verdict.UNDECIDED
    return Entry(metric.in_units(e.estimate), lower, upper, Verdict.UNTESTABLE if e.p is None else word)


def interaction(heat_map: Mapping[str, Any], down: Sequence[str], across: Sequence[str]) -> Chart:
    """A line for each level of the second field (`across`) over those of the first (`down`)."""
    metric = METRICS[heat_map["metric"]]
    first, second = (field_in_brief(heat_map[field]) for field in ("first", "second"))
    series = []
    for k, level in enumerate(across):
        name = f"{second} {level}"
        line = [
            Point(i, value, f"{first} {down[i]}, {name}: {metric.score(value)}")
            for i, row in enumerate(heat_map["values"])
            if (value := row[k]) is not None
        ]
        series.append(Series(name, line, f"g{k % 8}", name, marked=True, of="line"))
    return Chart(
        f"Dev {metric.prose_name} by {first} and {second}",
        Axis(first, words=dict(enumerate(down)), ends=(-0.2, len(down) - 0.8)),
        Axis(f"dev {metric.prose_name}", log=metric.log),
        series,
        (420, 300),
    )


ANALYSIS = Analysis(
    key="factors",
    find=find,
    sections=sections,
    lead=lead,
    notes=notes,
    notes_on_page=False,
    brief=notes,
    on_dashboard=True,
)
