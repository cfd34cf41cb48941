"""TPE against random search on a synthetic objective of known optimum, over the space of sweeps/search.yaml.

    python -m benchmarks.samplers [--seeds 30] [--trials 50]

The objective is a bowl in log learning rate, with its bottom shifted by warm-up and depth, gentle slopes for dropout
and label smoothing, and a gain from depth and width that saturates: about the shape that published tables of NMT
hyperparameters have. Its least value is 4.0. Each proposal comes from the sampler that a worker of `tune` would use.
"""

import argparse
import math
import statistics
from typing import Any

import numpy as np
import optuna
from scipy.stats import wilcoxon

from lightning_tfm.config import Experiment
from lightning_tfm.queue.searches.sampling import make_sampler
from lightning_tfm.rng import generator
from lightning_tfm.study.sweeps import read_search

NOISE = 0.02
"""standard deviation of a run's perplexity over seeds"""


def objective(change: dict[str, Any]) -> float:
    """Perplexity without noise; 4.0 at best."""
    lr, warmup, N = change["training.lr_factor"], change["training.warmup"], change["model.N"]
    best_lr = math.log(0.6) + 0.3 * math.log(warmup / 400) - 0.05 * (N - 6)
    bowl = 0.8 * (math.log(lr) - best_lr) ** 2
    bowl += 0.3 * math.log(warmup / 400) ** 2
    bowl += 12 * (change["model.P_drop"] - 0.1) ** 2 + 6 * (change["training.eps_ls"] - 0.05) ** 2
    size = {2: 0.8, 4: 0.3, 6: 0.05, 8: 0.0}[N] + {256: 0.7, 512: 0.2, 1024: 0.0}[change["model.d_model"]]
    return 4.0 + bowl + size


def search(name: str, seed: int, trials: int) -> list[float]:
    """The true value of what the search would pick after each trial."""
    space = read_search("sweeps/search.yaml").space(Experiment())
    study = optuna.create_study(direction="minimize")
    noise = generator("benchmark of samplers", seed).normal(0, NOISE, trials)
    found, best = [], math.inf
    for number in range(trials):
        study.sampler = make_sampler(name, seed, number)
        trial = study.ask()
        change = {parameter.name: parameter.suggest(trial) for parameter in space}
        seen = objective(change) + noise[number]
        study.tell(trial, seen)
        if seen < best:
            best, true = seen, objective(change)
        found.append(true)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=50)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    curves = {n: np.array([search(n, s, options.trials) for s in range(options.seeds)]) for n in ("tpe", "random")}
    print(
        f"{options.seeds} seeds x {options.trials} trials, least value 4.0, noise {NOISE}; optuna {optuna.__version__}"
    )
    print("trials   TPE mean ± sd     random mean ± sd")
    for at in (10, 20, 30, 40, 50):
        if at <= options.trials:
            cells = [f"{c[:, at - 1].mean():.3f} ± {c[:, at - 1].std(ddof=1):.3f}" for c in curves.values()]
            print(f"{at:6}   {cells[0]:16}  {cells[1]}")
    tpe, chance = curves["tpe"][:, -1], curves["random"][:, -1]
    needed = [int(np.argmax(c <= r)) + 1 for c, r in zip(curves["tpe"], chance, strict=True) if c.min() <= r]
    wins = int((tpe < chance).sum())
    print(f"TPE better in {wins} of {options.seeds} seeds; mean difference {np.mean(chance - tpe):.3f}")
    print(f"Wilcoxon signed-rank p = {wilcoxon(tpe, chance, alternative='less').pvalue:.2e}")
    if needed:
        print(f"TPE reached random's end after {statistics.median(needed):g} trials (median of {len(needed)} seeds)")


if __name__ == "__main__":
    main()
