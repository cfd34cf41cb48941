"""How often the 95 % interval of a compute multiplier holds the truth (report/analyses/compute_multiplier.py).

    nice -n 19 python -m benchmarks.worth > benchmarks/results/worth.txt        (two minutes on one thread)

A row that is m times as fast as base stands at step t where base stands at m t, so that its multiplier is m exactly, at
every perplexity. Base's true curve runs through the mean curve of a committed study (the miniature's base, five seeds;
a monotone cubic in the logarithm of the step, beyond the last validation at its last slope), validated eight times. A
seed adds to log PPL what it keeps to the end and what changes between two validations; both of them with the standard
deviation of the study's rows at the end, four times as much at the first validation, normal or t with 3 degrees of
freedom, equal in all rows or log-normal between them (over a factor of 7: 95 %). A study has base and 20 rows, four of
each m; the standard error is the project's own (`statistics.compare`: moderated variances). Printed for each m: the
share of rows whose interval covers m; in brackets the share whose multiplier is a bound, which is counted as covering
where m lies beyond it; the median of upper / lower.
"""

import argparse
import math

import numpy as np
from scipy.interpolate import PchipInterpolator

from benchmarks.machine import of_today
from lightning_tfm.report.analyses.compute_multiplier import MeanCurve, multiplier
from lightning_tfm.report.stats import statistics

SEED = 27
STEPS = np.arange(1, 9) * 250
LOG_PPL = np.array([2.885, 1.437, 1.082, 0.938, 0.853, 0.808, 0.776, 0.757])
"""base of experiments/results/modern"""
SD = 0.018
"""of log PPL over seeds at the end: the median of that study's rows"""
EARLY = 4.0
"""times that at the first validation"""
TRUE = (0.5, 0.8, 1.0, 1.25, 2.0)
ROWS = 1 + 4 * len(TRUE)


def true_curve(log_t: np.ndarray) -> np.ndarray:
    x = np.log(STEPS)
    inside = PchipInterpolator(x, LOG_PPL)
    low, high = (LOG_PPL[1] - LOG_PPL[0]) / (x[1] - x[0]), (LOG_PPL[-1] - LOG_PPL[-3]) / (x[-1] - x[-3])
    beyond = np.where(log_t < x[0], LOG_PPL[0] + low * (log_t - x[0]), LOG_PPL[-1] + high * (log_t - x[-1]))
    return np.where((log_t < x[0]) | (log_t > x[-1]), beyond, inside(np.clip(log_t, x[0], x[-1])))


def noise(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    return rng.standard_t(3, shape) / math.sqrt(3) if kind == "t3" else rng.standard_normal(shape)


Row = tuple[float, bool, bool, float]
"""(m, covered, a bound, upper / lower)"""


def study(rng: np.random.Generator, n: int, kind: str, unequal: bool, share: float) -> list[Row]:
    """Every row. `kept`: share of the variance that a seed keeps to the end."""
    V, m_R = len(STEPS), np.array([1.0, *np.repeat(TRUE, 4)])
    sd_R = SD * np.exp(0.5 * rng.standard_normal(ROWS) * unequal)
    scale_V = np.interp(np.log(STEPS), np.log(STEPS[[0, 3]]), [EARLY, 1.0])
    own = math.sqrt(share) * noise(rng, (ROWS, n, 1), kind) + math.sqrt(1 - share) * noise(rng, (ROWS, n, V), kind)
    truth_RV = true_curve(np.log(STEPS)[None] + np.log(m_R)[:, None])
    y_RSV = truth_RV[:, None] + sd_R[:, None, None] * scale_V * own
    ends_RS, n_R = y_RSV[..., -1], np.full(ROWS, n)
    nothing = statistics.SentenceNoise(np.zeros(ROWS), np.zeros(ROWS))
    d = statistics.compare(ends_RS.mean(1), ends_RS.var(1, ddof=1), n_R, nothing)
    low_R, high_R = d.interval()
    curves = [MeanCurve(np.log(STEPS), y) for y in y_RSV.mean(1)]
    rows = []
    for r in range(1, ROWS):
        multiple = multiplier(curves[0], curves[r], float(high_R[r] - low_R[r]) / 2)
        low, high = multiple.lower, multiple.upper
        bound = multiple.estimate is None
        inside = (low is None or low <= m_R[r]) and (high is None or m_R[r] <= high)
        ratio = math.nan if bound or low is None or high is None else high / low
        rows.append((float(m_R[r]), inside, bound, ratio))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400, help="of each line [400]")
    count = parser.parse_args().studies
    print("Coverage of the 95 % interval of the compute multiplier in steps (benchmarks/worth.py)")
    print(f"seed {SEED}, {count} studies of {ROWS - 1} rows a line; {of_today()}\n")
    heads = "".join(f"{f'm = {m:g}':>22}" for m in TRUE)
    print(f"{'seeds  noise   rows      kept':30}{heads}")
    rng = np.random.default_rng(SEED)
    for n in (3, 5):
        for kind in ("normal", "t3"):
            for unequal in (False, True):
                for kept in (0.3, 0.8):
                    rows = [row for _ in range(count) for row in study(rng, n, kind, unequal, kept)]
                    cells = []
                    for m in TRUE:
                        of_m = [(inside, bound, ratio) for true, inside, bound, ratio in rows if true == m]
                        inside, bound = (100 * float(np.mean([row[i] for row in of_m])) for i in (0, 1))
                        wide = float(np.nanmedian([row[2] for row in of_m]))
                        cells.append(f"{inside:7.1f} ({bound:4.1f}) × {wide:5.2f}")
                    spread = "unequal" if unequal else "equal"
                    print(f"{n:<7}{kind:8}{spread:10}{kept:<5g}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
