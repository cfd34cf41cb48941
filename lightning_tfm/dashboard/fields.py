"""What runs may be chosen, sorted, listed and grouped by: what they train, their scores, and where they are."""

from dataclasses import fields as fields_of
from functools import partial
from itertools import product
from typing import Any, Literal, cast

from lightning_tfm.config import Experiment
from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.marks import Mark
from lightning_tfm.metrics import METRICS, PRINTED
from lightning_tfm.watch.query import Field
from lightning_tfm.watch.run_state import STATES, RunState

Kind = Literal["number", "text", "truth", "time"]
KINDS: dict[Any, Kind] = {int: "number", float: "number", bool: "truth"}
"""of a field of the experiment by its type; text otherwise"""
OF_STATE: dict[str, Kind] = {"words": "text", "started": "time", "changed": "time"}
OF_STATE |= dict.fromkeys("step steps ppl best_ppl loss parameters seconds attempts".split(), "number")
OF_STATE |= {"tokens_per_second": "number"}
"""attributes of RunState"""
OF_RECORD = ("flops", "target_tokens", "source_tokens", "V", "utilisation")
"""numbers of a finished run's record"""
OF_SCORE = (*PRINTED, "nll", "nll_per_word", "nll_per_character")


def fields(seen: Seen) -> dict[str, Field]:
    """All that are known of the runs seen, by name."""
    runs = seen.runs.values()
    found = [
        Field("run", "text", lambda run: run.name),
        Field("state", "text", lambda run: run.state, STATES),
        Field("study", "text", lambda run: _studies(seen, run), tuple(seen.studies)),
        Field("row", "text", lambda run: _rows(seen, run)),
        Field("seed", "number", lambda run: run.experiment.get("training", {}).get("seed", _called(seen, run))),
        Field("diverged", "truth", lambda run: run.diverged if run.state == "finished" else None),
        Field("starred", "truth", lambda run: _mark(seen, run).star),
        Field("note", "text", lambda run: _mark(seen, run).note or None),
        Field("host", "text", lambda run: run.record.hardware.host or None if run.record else None),
    ]
    found += [Field(name, kind, partial(_attribute, name)) for name, kind in OF_STATE.items()]
    found += [Field(name, "number", partial(_of_record, name)) for name in OF_RECORD]
    records = [run.record for run in runs if run.record]
    measured = {(text, name) for record in records for text, score in record.scores.items() for name in score.measures}
    scored = {*PRINTED, *(name for text, name in measured if text == "dev")}
    metrics = [metric for name, metric in METRICS.items() if metric.counted and name in scored]
    found += [Field(metric.name, "number", partial(RunState.score, metric=metric)) for metric in metrics]
    texts = sorted({text for record in records for text in record.scores})
    held = [*product(texts, OF_SCORE), *sorted(measured)]
    found += [Field(f"{text}.{one}", "number", partial(_score, text, one)) for text, one in held]
    for section in fields_of(Experiment):
        if section.name != "miniature":  # of sizes that are true ones here
            for own in fields_of(cast(Any, section.type)):
                get = partial(_trained, section.name, own.name, own.default)
                found.append(Field(f"{section.name}.{own.name}", KINDS.get(own.type, "text"), get))
    return {field.name: field for field in found}


def _mark(seen: Seen, run: RunState) -> Mark:
    return seen.marks.get(f"run/{run.name}", Mark())


def _studies(seen: Seen, run: RunState) -> tuple[str, ...]:
    return tuple(dict.fromkeys(home.study for home in seen.homes.get(run.name, ())))


def _rows(seen: Seen, run: RunState) -> tuple[str, ...]:
    homes = seen.homes.get(run.name, ())
    return tuple(dict.fromkeys(home.row for home in homes)) or ((run.called.row,) if run.called else ())


def _called(seen: Seen, run: RunState) -> int | None:
    homes = seen.homes.get(run.name, ())
    return homes[0].seed if homes else run.called.seed if run.called else None


def _attribute(name: str, run: RunState) -> Any:
    value = getattr(run, name)
    return None if value == "" else value


def _of_record(name: str, run: RunState) -> Any:
    return getattr(run.record, name) if run.record else None


def _score(text: str, name: str, run: RunState) -> Any:
    score = run.record.scores.get(text) if run.record else None
    own = score.measures.get(name) if score else None
    return own.value if own else getattr(score, name, None)


def _trained(section: str, name: str, default: Any, run: RunState) -> Any:
    """What a run was trained with before there was the field, is its default."""
    return run.experiment.get(section, {}).get(name, default) if run.experiment else None


def value_in_words(value: Any) -> str:
    """For a table; empty for none."""
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
