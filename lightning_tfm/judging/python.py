"""`lightning_tfm.judge`: verdicts on a DataFrame or a list of dicts (docs/howto/judge.md)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lightning_tfm.judging import gate, views
from lightning_tfm.judging.scores import aim, gathered
from lightning_tfm.judging.verdicts import Judgement, judged

SOURCE = "scores"


@dataclass(frozen=True)
class Verdicts:
    """What `judge` found; printed, it is the table of the command line."""

    judgement: Judgement

    def __str__(self) -> str:
        return views.terminal(self.judgement)

    def table(self) -> Any:
        """A DataFrame with a line for each row and metric, at full precision."""
        return import_module("pandas").DataFrame(list(views.data(self.judgement)))

    def forest(self) -> "Picture":
        """The main figure, for a notebook."""
        from lightning_tfm.report.charts.forest_picture import wide

        return Picture(wide(views.forest(self.judgement), titled=True))

    def gate(self, row: str) -> gate.Answer:
        """What `--gate ROW` says: `.code` is 0 (better), 3 (undecided) or 4 (not better), `.line` a dict."""
        return gate.plain(self.judgement, row)


@dataclass(frozen=True)
class Picture:
    """SVG, which a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        from lightning_tfm.report.charts.svg import standing_alone

        return standing_alone(self.svg)


def judge(
    frame: Any,
    base: str | None = None,
    metrics: Mapping[str, str] | None = None,
    *,
    row: str = "row",
    seed: str = "seed",
    target: float | None = None,
) -> Verdicts:
    """Verdicts on `frame`, a DataFrame or a list of dicts, one a run, with columns `row`, `seed` and metrics.

    `metrics`: name -> "higher" or "lower", then [:log][:MARGIN], as on the command line; the first decides. `base`: the
    row that the others are compared with ["base" or "baseline"]; `target`: a number instead. Raises UserError.
    """
    aims = [aim(f"{name}:{side}") for name, side in (metrics or {}).items()]
    scores = gathered(SOURCE, _records(frame), aims, row, seed)
    return Verdicts(judged(scores, aims, base, target))


def _records(frame: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    records: Iterable[Mapping[str, Any]] = frame.to_dict("records") if hasattr(frame, "to_dict") else frame
    for number, record in enumerate(records, 1):
        yield number, {key: value.item() if hasattr(value, "item") else value for key, value in record.items()}
