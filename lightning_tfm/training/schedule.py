"""The learning rate (5.3, eq. 3)."""

from lightning_tfm.config import Training


def learning_rate(step: int, d_model: int, t: Training) -> float:
    """Rate of optimizer step `step`, counted from 0 (the paper's step_num is step + 1).

    lr_factor * d_model^-0.5 * min(n^-0.5, n * warmup^-1.5), n = step + 1; with schedule `linear`, after the warm-up a
    straight line from the same peak to 0 after the last step.
    """
    n = step + 1
    peak = t.lr_factor * d_model**-0.5 * t.warmup**-0.5
    if n <= t.warmup:
        return peak * n / t.warmup
    if t.schedule == "inverse_sqrt":
        return t.lr_factor * d_model**-0.5 * n**-0.5
    return peak * (t.steps + 1 - n) / (t.steps + 1 - t.warmup)
