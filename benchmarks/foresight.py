"""How well `scaling` and `meta-analysis` foresee what they have not seen, on the studies themselves.

    python -m benchmarks.foresight scaling R2 R1 --target 65    folders of studies at several scales
    python -m benchmarks.foresight meta-analysis TABLE3 TATOEBA MULTI30K … > benchmarks/results/foresight.txt

scaling: the paper's differences (log PPL to base) from one number of each row times one factor through the origin,
fitted on the paper's other rows, a row left out at a time: from the rule's prediction, from each scale's own
difference, and beside them zero and the logarithm of the parameter count. 90 % intervals are t's, from the residuals of
the rows fitted on; p: squared errors against the parameter count's, paired over rows (Wilcoxon).
meta-analysis: the studies of a family of texts (one corpus and folder) are held out together; each of their differences
either is within mu ± t_(K_e - 2) sqrt(tau^2 + se^2 + v) of the others or is not, v of the difference that is held out.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy.stats import wilcoxon

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS
from lightning_tfm.report.across.long_table import Studies, by_name, family, long_table, metrics_of
from lightning_tfm.report.across.meta_analysis import LEAST, half_width, random_effects
from lightning_tfm.report.across.scaling import by_size, scaling_rows
from lightning_tfm.report.stats.statistics import t_isf
from lightning_tfm.report.study_report import Report, make

RULE, ZERO, COUNT = "this rule", "zero", "the parameter count"
FEWEST = 8
"""rows of the paper below which no factor is fitted"""


@dataclass(frozen=True)
class Calibration:
    """The paper's differences from one number of each row, a row left out at a time; in 100 log PPL."""

    factor: float
    """of all rows"""
    errors: np.ndarray
    halves: np.ndarray
    """of the 90 % intervals"""

    @property
    def rms(self) -> float:
        return math.sqrt(float((self.errors**2).mean()))

    @property
    def coverage_count(self) -> int:
        return int((np.abs(self.errors) <= self.halves).sum())

    @property
    def score(self) -> float:
        """Mean interval score (Gneiting and Raftery 2007); less is better."""
        return float((2 * self.halves + 2 / 0.1 * np.maximum(np.abs(self.errors) - self.halves, 0)).mean())


def calibration(x_R: np.ndarray, paper_R: np.ndarray) -> Calibration:
    """`x_R` all zero: nothing differs."""
    errors, halves = [], []
    for r in range(len(x_R)):
        others = np.arange(len(x_R)) != r
        factor, degrees = through_origin(x_R[others], paper_R[others]), others.sum() - bool(x_R.any())
        left = paper_R[others] - factor * x_R[others]
        errors.append(100 * (paper_R[r] - factor * x_R[r]))
        halves.append(100 * float(t_isf(0.05, degrees)) * math.sqrt((left**2).sum() / degrees))
    return Calibration(through_origin(x_R, paper_R), np.array(errors), np.array(halves))


def through_origin(x: np.ndarray, y: np.ndarray) -> float:
    return float((x * y).sum() / (x * x).sum()) if x.any() else 0.0


def calibrations(reports: Sequence[Report], target: float) -> dict[str, Calibration]:
    """Way of foreseeing the paper -> how well it does. Raises UserError where the paper prints too few of the rows."""
    studies = Studies.of(by_size(reports))
    rows, _, _ = scaling_rows(studies, target)
    rows = rows[rows.paper.notna()]
    if len(rows) < FEWEST:
        raise UserError(f"the paper prints {len(rows)} of the rows, a factor takes {FEWEST}")
    *_, largest = (report.summary for report in studies.reports.values())
    count = {name: row.parameters for name, row in family(largest).items()}
    sizes = np.array([count[row] for row in rows.index], dtype=float)
    of_base = next(row.parameters for row in largest.rows if row.base)
    ways = {RULE: rows.prediction, ZERO: 0 * sizes, COUNT: -np.log(sizes / of_base)}
    ways |= {study: rows[f"{study} estimate"] for study in studies.reports}
    return {by: calibration(np.asarray(x, float), rows.paper.to_numpy()) for by, x in ways.items()}


def held_out(
    reports: Sequence[Report], metric: str, kinds: Mapping[str, str]
) -> tuple[list[str], list[bool], list[float]]:
    """(families that could be held out, whether each of their differences is in its interval, half-widths).

    `kinds`: study -> its family.
    """
    lines, _ = long_table(reports, to_first=False)
    lines = lines[(lines.metric == metric) & (lines.se > 0)]
    tried, inside, widths = [], [], []
    for kind in dict.fromkeys(kinds.values()):
        for _, of in lines.groupby("row", sort=False):
            own = of.study.map(kinds) == kind
            others = of[~own]
            if len(others) < LEAST:
                continue
            effect = random_effects(others.estimate, others.se**2)
            for r in of[own].itertuples():
                widths.append(half_width(effect["tau"] ** 2, effect["se"], effect["effective"], r.se**2))
                inside.append(abs(r.estimate - effect["estimate"]) <= widths[-1])
                tried.append(kind)
    return list(dict.fromkeys(tried)), inside, widths


def show_scaling(reports: Sequence[Report], target: float) -> None:
    ways = calibrations(reports, target)
    print(f"the paper's differences, a row left out at a time, of {len(ways[ZERO].errors)}; errors in 100 log PPL\n")
    print(
        f"{'foreseen by':24} {'factor':>7} {'error':>6} {'90 % cover':>11} {'interval score':>15} {'p to ' + COUNT:>24}"
    )
    for by, way in ways.items():
        p = "" if by in (ZERO, COUNT) else f"{wilcoxon(way.errors**2 - ways[COUNT].errors ** 2).pvalue:.2g}"
        print(f"{by:24} {way.factor:7.2f} {way.rms:6.1f} {way.coverage_count:11} {way.score:15.1f} {p:>24}")


def show_families(reports: Sequence[Report]) -> None:
    print(f"{', '.join(by_name(reports))}; held out a family of texts at a time\n")
    texts = {study: report.cells.study.base.data for study, report in by_name(reports).items()}
    kinds = {study: f"{text.corpus} {text.folder}" for study, text in texts.items()}
    for metric in metrics_of(reports):
        families, inside, widths = held_out(reports, metric, kinds)
        if inside:
            of, cases = METRICS[metric], len(inside)
            print(
                f"{of.label}, {len(families)} families: {sum(inside)} of {cases} differences "
                f"({100 * sum(inside) / cases:.0f} %) lie in the 95 % interval that the other studies give; "
                f"median half-width {median(widths):.2f} {of.tested_as}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("of", choices=["scaling", "meta-analysis"])
    parser.add_argument("studies", nargs="+", type=Path, help="folders, RESULTS/studies/NAME")
    parser.add_argument("--target", type=float, default=65.0, help="parameters of base in millions [65, the paper's]")
    options = parser.parse_args()
    reports = [make(folder.resolve().name, folder.resolve().parents[1]) for folder in options.studies]
    if options.of == "scaling":
        show_scaling(reports, 1e6 * options.target)
    else:
        show_families(reports)


if __name__ == "__main__":
    main()
