"""`lightning_tfm.judge`: verdicts on a DataFrame or a list of dicts (docs/howto/judge.md)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightning_tfm.judging.scores import aim, gathered
from lightning_tfm.judging.verdicts import Judgement, judged


def judge(
    frame: Any,
    base: str | None = None,
    metrics: Mapping[str, str] | None = None,
    *,
    row: str = "row",
    seed: str = "seed",
    target: float | None = None,
) -> Judgement:
    """Verdicts on `frame`, a DataFrame or a list of dicts, one per run, with columns `row`, `seed` and metrics.

    `metrics`: name -> "higher" or "lower", then [:log][:MARGIN], as on the command line; the first decides. `base`: the
    row that the others are compared with ["base" or "baseline"]; `target`: a number instead. Raises UserError.
    """
    aims = [aim(f"{name}:{side}") for name, side in (metrics or {}).items()]
    return judged(gathered("scores", _records(frame), aims, row, seed), aims, base, target)


def _records(frame: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    records: Iterable[Mapping[str, Any]] = frame.to_dict("records") if hasattr(frame, "to_dict") else frame
    for number, record in enumerate(records, 1):
        yield f"line {number}", {key: v.item() if hasattr(v, "item") else v for key, v in record.items()}
