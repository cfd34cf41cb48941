"""How often a search of several seeds shows a gain over base that is not there: its 95 % interval excludes none.

    python -m benchmarks.gains

Trials and base alike, normal; the best of them by its mean, against base by Welch's interval (study/trials.py).
"""

import numpy as np

from lightning_tfm.study.trials import _interval

STUDIES = 1500


def rate(seeds: int, trials: int, rng: np.random.Generator) -> float:
    """Share of searches of so many trials in which the interval of the best one's gain excludes 0."""
    hits = 0
    for _ in range(STUDIES):
        base, tried = rng.normal(size=seeds).tolist(), rng.normal(size=(trials, seeds))
        found = _interval(tried[tried.mean(1).argmin()].tolist(), base)
        hits += found is not None and (found[1] < 0 or found[0] > 0)
    return hits / STUDIES


def main() -> None:
    rng = np.random.default_rng(5)
    for seeds in (2, 3, 5):
        rates = [f"{trials} trials {100 * rate(seeds, trials, rng):.1f} %" for trials in (1, 10, 40)]
        print(f"{seeds} seeds: {', '.join(rates)}")


if __name__ == "__main__":
    main()
