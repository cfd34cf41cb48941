"""What runs may be chosen, sorted, listed and grouped by: what they train, their scores, and where they are."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields as fields_of
from datetime import datetime
from functools import cache, lru_cache, partial
from itertools import product
from statistics import fmean
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from lightning_tfm.config import WIDTHS, Experiment, Miniature, typed_and_trained
from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.markup import NOTHING
from lightning_tfm.metrics import CHARACTER, METRICS, PPL, PRINTED
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.watch.query import Field
from lightning_tfm.watch.run_state import STATES, RunState

Kind = Literal["number", "text", "truth", "time"]
KINDS: dict[Any, Kind] = {int: "number", float: "number", bool: "truth", str: "text"}
"""of a field by its type"""
TIMES = ("started", "changed", "written", "ended")
"""numbers that are seconds since 1970"""
OTHERWISE = ("name", "schema", "train")
"""of a run or its record, what is known by another name here, or taken for a field of the experiment"""
OF_SCORE = ("nll", *(m.field for m in (*METRICS.values(), CHARACTER) if m.printed or m.beside))
"""what every score has a place for"""


@lru_cache(1)
def fields(seen: Seen) -> Mapping[str, Field]:
    """All that are known of the runs seen, by name; looked for once, as every run is asked for its scores."""
    found = [
        Field(name, kind, partial(_of_record, name)) for name, kind in _fields_of(RunRecord).items() if kind != "text"
    ]
    for name, kind in _fields_of(RunState).items():
        found.append(Field(name, kind, partial(_attribute, name), mean=PPL.mean if name.endswith("ppl") else fmean))
    found += [
        Field("run", "text", lambda run: run.name),
        Field("state", "text", lambda run: run.state, STATES),
        Field("study", "text", lambda run: _studies(seen, run), tuple(seen.studies)),
        Field("row", "text", lambda run: _rows(seen, run)),
        Field("seed", "number", lambda run: run.experiment.get("training", {}).get("seed", _called(seen, run))),
        Field("diverged", "truth", lambda run: run.diverged or (False if run.state == "finished" else None)),
        Field("host", "text", lambda run: run.record.hardware.host or None if run.record else None),
    ]
    records = [run.record for run in seen.views if run.record]
    measured = {(text, name) for record in records for text, score in record.scores.items() for name in score.measures}
    scored = {*PRINTED, *(name for text, name in measured if text == "dev")}
    metrics = [metric for name, metric in METRICS.items() if metric.counted and name in scored]
    short = _short_names([name for _, name in measured])
    found += [
        Field(short.get(one.name, one.name), "number", partial(RunState.score, metric=one), mean=one.mean)
        for one in metrics
    ]
    texts = sorted({text for record in records for text in record.scores})
    for text, one in [*product(texts, OF_SCORE), *sorted(measured)]:
        mean = METRICS[one].mean if one in METRICS else fmean
        found.append(Field(f"{text}.{short.get(one, one)}", "number", partial(_score, text, one), mean=mean))
    found += [Field(one, "number", partial(_score, "dev", one)) for one in OF_SCORE if one not in PRINTED]
    for section in fields_of(Experiment):
        if section.name != "miniature":  # of sizes that are true ones here
            for own in fields_of(cast(Any, section.type)):
                get = partial(_trained, section.name, own.name, own.default)
                found.append(Field(f"{section.name}.{own.name}", KINDS.get(own.type, "text"), get))
    return {field.name: field for field in found}


@cache
def _fields_of(of: type) -> dict[str, Kind]:
    """The numbers, texts and truths of a dataclass."""
    found: dict[str, Kind] = {}
    for name, hint in get_type_hints(of).items():
        types = {*(get_args(hint) or (hint,))} - {NoneType}
        kinds = {KINDS.get(one) for one in types} if get_origin(hint) not in (dict, list, tuple) else {None}
        if len(kinds) == 1 and (kind := kinds.pop()) is not None and name not in OTHERWISE:
            found[name] = "time" if name in TIMES else kind
    return found


def _short_names(metrics: Collection[str]) -> Mapping[str, str]:
    """Path of a user-defined metric, which a condition cannot hold -> the name of its class, if no other has it."""
    ends = {name: name.rpartition(":")[2] for name in set(metrics) if ":" in name}
    several = Counter(ends.values())
    return {name: end for name, end in ends.items() if several[end] == 1}


def _studies(seen: Seen, run: RunState) -> tuple[str, ...]:
    return tuple(dict.fromkeys(home.study for home in seen.places(run)))


def _rows(seen: Seen, run: RunState) -> tuple[str, ...]:
    homes = seen.places(run)
    return tuple(dict.fromkeys(home.row for home in homes)) or ((run.called.row,) if run.called else ())


def _called(seen: Seen, run: RunState) -> int | None:
    homes = seen.places(run)
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


def over_runs(field: Field, runs: Iterable[RunState]) -> Any:
    """What they hold: of numbers the mean, of times the latest, else every text or truth; None for nothing."""
    values = [value for run in runs if (value := field.of(run)) is not None]
    if field.kind in ("number", "time") and values:
        return max(values) if field.kind == "time" else field.mean(values)
    return ", ".join(dict.fromkeys(map(value_in_words, values))) or None


def as_column(field: Field, miniature: Miniature) -> tuple[str, str, Callable[[Any], str]]:
    """Its head, what it is, and how a value is written: as in the report's tables, where it is a column of these."""
    from lightning_tfm.report.tables.columns import FACTS  # with numpy: only for those who ask for a column

    fact = next((fact for fact in FACTS if fact.name == field.name and not fact.interval), None)
    head, about, written = (
        (fact.head, fact.about, fact.written) if fact else (field.name, "", partial(typed, field, miniature=miniature))
    )
    return head, about, lambda value: NOTHING if value is None else written(value)


def typed(field: Field, value: Any, miniature: Miniature) -> str:
    """As `field_text`; a size that a miniature divides as it is typed, with what is trained in brackets."""
    divisors = {"model.N": miniature.depth, "training.steps": miniature.steps}
    divisor = (divisors | {f"model.{name}": miniature.width for name in WIDTHS}).get(field.name, 1)
    if value is None or divisor == 1:
        return field_text(field, value)
    return typed_and_trained(value_in_words(value * divisor), value_in_words(value))


def field_text(field: Field, value: Any) -> str:
    """For a table; empty for none."""
    if field.kind == "time" and value is not None:
        return f"{datetime.fromtimestamp(value):%Y-%m-%d %H:%M}"
    return value_in_words(value)


def value_in_words(value: Any) -> str:
    """Empty for none."""
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
