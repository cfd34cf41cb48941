"""What a finished run leaves, as dataclasses: written once by its training as result.json, read by all the rest.

A field's name is its key in the file, and the order is the same. Fields with a default came later than the first
records, or are only shown: where a record lacks them they are None or empty. Keys that are not known here are skipped.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lightning_tfm.runs.owner import Owner
from lightning_tfm.sums import intact

FINISHED = "finished"
CURVES = {"dev_ppl": "dev/ppl", "dev_nll": "dev/nll", "loss": "train/loss", "nll": "train/nll", "lr": "train/lr"}
CURVES |= {"grad_norm": "train/grad_norm", "target_tokens": "train/target_tokens", "seconds": "train/seconds"}
"""key in metrics.jsonl -> its name in W&B, TensorBoard and MLflow"""
OTHERWISE = "scored by a different evaluation (decoding, weights or dev text)"
"""why a record does not belong in a study whose dev text it has not been scored on, or not so"""
INFINITE = "Infinity"
"""how JSON, which has no such number, holds one that overflowed, such as a perplexity; float() reads it"""


@dataclass(frozen=True, kw_only=True)
class LengthClass:
    """The lines of a text whose length lies in one class."""

    side: str
    """whose length: source, target, the longer of the two; `both`: by the longer, all from half a training length to a
    whole one, and all beyond"""
    above: float
    """the class's lengths lie above so many training lengths, and reach `upto`"""
    upto: float
    sentences: int
    nll: float
    """in nats, summed over the lines"""
    tokens: int
    """pieces of the references with their end tokens"""
    bleu: float
    pieces: int
    """of the translations with their end tokens: over `tokens` the length ratio"""
    early: int
    """translations with less than half as many pieces as their references"""


@dataclass(frozen=True, kw_only=True)
class ByLength:
    """A text scored by length up to several times the training length (data/long.py)."""

    limit: int
    """the training length, in pieces with the end token"""
    classes: list[LengthClass]


@dataclass(frozen=True)
class Measure:
    """A score in one more metric."""

    value: float
    signature: str


@dataclass(frozen=True, kw_only=True)
class Score:
    """Perplexity and BLEU of one text by one set of weights."""

    split: str = ""
    weights: str
    """last or average"""
    ppl: float
    """per piece, end token included; infinite where exp(nll / tokens) overflows (in the file: "Infinity")"""
    nll: float
    """in nats, summed over the text"""
    tokens: int
    """pieces that `nll` is summed over"""
    bleu: float
    """between 0 and 100"""
    signature: str
    """sacreBLEU's"""
    sentences: int | None = None
    words: int | None = None
    """of the raw references, separated by white space (scoring.text_size); the end of a sentence is none"""
    characters: int | None = None
    """of the raw references: Unicode code points, without the ends of lines"""
    nll_per_word: float | None = None
    """`nll`, which holds the end tokens' share, over `words`: no segmentation moves it; None in old records"""
    nll_per_character: float | None = None
    evaluation_hash: str
    by_length: ByLength | None = None
    """of the lines that data.long names"""
    files: dict[str, str] = field(default_factory=dict)
    """files beside scores/<evaluation>/<split>.json that belong to it: name -> sha256"""
    run: str = ""
    """in such a file, the folder of the run that was scored; older ones, and result.json, do not hold it"""
    measures: dict[str, Measure] = field(default_factory=dict)
    """what `validate` has added, in the file as NAME and NAME_signature: chrf, paper_bleu (where sacremoses is
    installed)"""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trainable numbers by part."""

    embedding: int | None = None
    encoder: int | None = None
    decoder: int | None = None
    positions: int | None = None
    total: int


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Wall-clock time by part, of all attempts up to the last checkpoint of each."""

    train: float
    validate: float | None = None
    checkpoint: float | None = None
    data: float | None = None
    decode: float | None = None
    """scoring after training"""
    total: float


@dataclass(frozen=True, kw_only=True)
class TrainSeconds:
    """Parts of the seconds of training."""

    forward: float
    backward: float
    optimizer: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine as the run's process saw it."""

    host: str = ""
    cpu: str = ""
    cpus: int | None = None
    gpus: list[str] = field(default_factory=list)
    processes: int | None = None
    threads: int | None = None
    """of each process"""
    system: str = ""
    command: list[str] = field(default_factory=list)
    trainer: dict[str, Any] | None = None
    """config.Hardware"""


@dataclass(frozen=True, kw_only=True)
class Git:
    """The checkout that the code ran from."""

    commit: str
    changed: bool
    """whether the package differed from the commit"""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Steps of a run that one attempt made and that count, and where it made them.

    An earlier version's part of a run has no attempt, machine or versions.
    """

    attempt: int | None = None
    first: int = 1
    last: int
    seconds: float | None = None
    """of training and data, up to the last checkpoint"""
    device: str = ""
    """cpu or cuda"""
    hardware: Machine = field(default_factory=Machine)
    versions: dict[str, str] = field(default_factory=dict)
    git: Git | None = None
    inexact: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What was trained and scored on: names and fingerprints."""

    corpus: str = ""
    store: str = ""
    """folder of the token store under <root>/data"""
    train: str = ""
    dev: str = ""
    tokenizer: str = ""
    too_long: int | None = None
    """pairs of the training text that data.max_len leaves out"""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A finished run."""

    schema: int = 1
    status: str = FINISHED
    training_hash: str
    identity: dict[str, Any]
    """what `training_hash` is the hash of (config.training_identity)"""
    experiment: dict[str, Any] = field(default_factory=dict)
    """config.to_dict, at the sizes that were trained"""
    parameters: Parameters
    V: int | None = None
    """pieces of the vocabulary"""
    steps: int | None = None
    target_tokens: int | None = None
    """true tokens that were trained on, as are `source_tokens`"""
    source_tokens: int | None = None
    padding: float | None = None
    """share of the cells of all batches, of all processes; None where not all were counted"""
    flops: int | float
    """of training, by formula (model/flops.py)"""
    seconds: Seconds
    train_seconds: TrainSeconds | None = None
    tokens_per_second: float | None = None
    """target tokens over the seconds of training and data; so are `flops_per_second`"""
    flops_per_second: float | None = None
    matrix_flops_per_second: float | None = None
    """of a product of square matrices on one device (runs/environment.py)"""
    utilisation: float | None = None
    """`flops_per_second` over that of all devices; None where attempts had different ones"""
    scores: dict[str, Score]
    """dev, test and long by the weights that the experiment asks for; dev_last, test_last, … by the others"""
    hardware: Machine = field(default_factory=Machine)
    """of the attempt that ended and scored the run, as are `versions` and `git`; `ran` has all"""
    versions: dict[str, str] = field(default_factory=dict)
    git: Git | None = None
    """None outside a checkout"""
    data: Texts = field(default_factory=Texts)
    inexact: list[str] = field(default_factory=list)
    """what may keep another machine from the same numbers up to the order of sums"""
    attempts: int | None = None
    started: float | None = None
    """seconds since 1970, as is `ended`"""
    ended: float | None = None
    ran: list[Stretch] = field(default_factory=list)
    """where the steps were made, the first ones first"""
    files: dict[str, str] = field(default_factory=dict)
    """files of the run's folder that belong to the record: name -> sha256"""

    @property
    def contradiction(self) -> str:
        """What the record says that cannot both be; empty for nothing. Versions up to 2026-11-22 could write it."""
        named, trained = str(self.identity.get("train", "")), self.data.train
        if trained == named or "" in (trained, named):
            return ""
        return (
            f"it was trained on another text ({trained[:12]}…) than it is named by ({named[:12]}…): the files were "
            f"edited while its study ran; lightning-tfm runs remove {self.training_hash[:16]}, then train it again"
        )

    def scored_by(self, evaluation: str) -> bool:
        """Whether the dev score is of this evaluation (its hash)."""
        return "dev" in self.scores and self.scores["dev"].evaluation_hash == evaluation

    def measured(self, name: str) -> float:
        """An objective or a limited quantity of a search: parameters, seconds (of training), dev/ppl, dev/bleu, …"""
        match name:
            case "parameters":
                return float(self.parameters.total)
            case "seconds":
                return float(self.seconds.train)
            case _:
                return float(getattr(self.scores["dev"], name.removeprefix("dev/")))


@dataclass(frozen=True)
class Progress:
    """Where a run stands: its progress.json."""

    step: int
    steps: int
    tokens_per_second: float
    phase: str
    time: float
    """when this was so; seconds since 1970"""
    attempt: int = 0
    """which attempt wrote it; 0 in records from before this was kept"""


@dataclass(frozen=True)
class LastWords:
    """How the last attempt at a run ended: its outcome.json."""

    outcome: str
    """as in outcome.TABLE"""
    reason: str
    step: int | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class Called:
    """As what a run was last asked for: its cell.json."""

    row: str
    seed: int


@dataclass(frozen=True)
class Claimed:
    """One of the attempts at a run: attempts/<number>.json. Times are seconds since 1970."""

    number: int
    token: str
    owner: Owner
    time: float
    ended: float | None


@dataclass(frozen=True)
class Missing:
    """Why there is no record."""

    reason: str
    damaged: bool = False
    """there is a file, but no record of a run in it"""
    diverged: bool = False
    """the run was trained, and its training diverged (runs/divergence.py)"""


class _Malformed(ValueError):
    """What a record lacks."""


def to_plain(record: RunRecord | Score) -> dict[str, Any]:
    """The content of its file, but for its checksum (sums.signed). What older versions lack is left out if empty."""
    plain = asdict(record)
    for part in (plain, *plain.get("scores", {}).values()):
        for name in [name for name in LATE if name in part and not part[name]]:
            del part[name]
        for name, added in part.pop("measures", {}).items():
            part |= {name: added["value"], f"{name}_signature": added["signature"]}
        part |= {"ppl": infinite_as_text(part["ppl"])} if "ppl" in part else {}
    return plain


def infinite_as_text(value: Any) -> Any:
    """`value` with INFINITE for every infinity in it."""
    if isinstance(value, dict):
        return {key: infinite_as_text(one) for key, one in value.items()}
    if isinstance(value, list):
        return [infinite_as_text(one) for one in value]
    return INFINITE if value == math.inf else value


def read(path: Path) -> RunRecord | Missing:
    """The record in `path` (a run's result.json), checked: what it holds can be computed with, and is of this run."""
    found = _read(path, from_plain)
    if isinstance(found, RunRecord) and found.training_hash[:16] != path.parent.name:
        return Missing(f"it is the record of run {found.training_hash[:16]}", damaged=True)
    if isinstance(found, RunRecord) and found.contradiction:
        return Missing(found.contradiction, damaged=True)
    return found


LATE = ("ran", "files", "words", "characters", "nll_per_word", "nll_per_character", "by_length", "run")
"""fields that came later and need not be there"""
BOUNDED = ("number", "step", "steps", "attempt", "tokens_per_second", "time", "started", "ended")
MOST = 1e11
"""which none of BOUNDED reaches: as seconds since 1970 it is the year 5138"""
Small = TypeVar("Small", Progress, LastWords, Called, Claimed)


def read_small(kind: type[Small], path: Path) -> Small | None:
    """A record of the run folder that is not result.json; None where there is none. Raises ValueError."""
    found = _read(path, lambda plain: _made(kind, plain, "record"))
    if isinstance(found, Missing) and found.damaged:
        raise _Malformed(found.reason)
    return None if isinstance(found, Missing) else found


def read_score(path: Path) -> Score | Missing:
    """The score in `path` (a run's scores/<evaluation>/<split>.json)."""
    found = _read(path, lambda plain: _made(Score, _with_measures(plain), path.stem))
    if isinstance(found, Score) and found.run not in ("", path.parents[2].name):
        return Missing(f"{path.name} is the score of run {found.run}", damaged=True)
    return found


def _with_measures(plain: Any) -> Any:
    """What `validate` has added as one field."""
    if not isinstance(plain, dict):
        return plain
    names = (key.removesuffix("_signature") for key in plain if key.endswith("_signature"))
    found = {name: {"value": plain.get(name), "signature": plain[f"{name}_signature"]} for name in names}
    return plain | {"measures": {name: one for name, one in found.items() if one["value"] is not None}}


def stretches(plain: list[dict[str, Any]]) -> list[Stretch]:
    """Where the steps of a run were made, out of its checkpoint. Raises ValueError."""
    return [_made(Stretch, one, "ran") for one in plain]


def from_plain(plain: Any) -> RunRecord | Missing:
    """The record in the content of a result.json. Raises ValueError naming what is wrong."""
    status = plain.get("status") if isinstance(plain, dict) else None
    if status is None:
        raise _Malformed("'status' is missing")
    return _made(RunRecord, plain, "record") if status == FINISHED else Missing(str(status))


def _read(path: Path, make: Any) -> Any:
    try:
        plain = json.loads(path.read_bytes())
        if not intact(plain):
            return Missing("its record is damaged: its checksum does not match", damaged=True)
        return make(plain)
    except FileNotFoundError:
        return Missing("there is none")
    except json.JSONDecodeError as error:
        return Missing(f"its record cannot be read: not valid JSON ({error})", damaged=True)
    except _Malformed as error:
        return Missing(f"its record is malformed: {error}", damaged=True)
    except (OSError, ValueError, RecursionError) as error:
        return Missing(f"its record cannot be read: {error}", damaged=True)


@cache
def _kinds(made: type) -> Mapping[str, Any]:
    return get_type_hints(made)


def _made(kind: Any, plain: Any, name: str) -> Any:
    """`plain` as a `kind`, for which an annotation may stand. Raises _Malformed."""
    arguments = get_args(kind)
    if is_dataclass(kind):
        return _object(kind, plain, name)
    if NoneType in arguments:
        return None if plain is None else _made(arguments[0], plain, name)
    if kind in (int, float) or arguments == (int, float):
        return _number(plain, name)
    if get_origin(kind) is dict:
        _check(isinstance(plain, dict), f"{name} is not an object")
        return plain if arguments[1] is Any else {str(k): _made(arguments[1], v, str(k)) for k, v in plain.items()}
    if get_origin(kind) is list:
        _check(isinstance(plain, list), f"{name} is not a list")
        return [_made(arguments[0], value, name) for value in plain]
    _check(isinstance(plain, kind), f"{name} is not {'text' if kind is str else 'true or false'}")
    return plain


def _object(kind: Any, plain: Any, name: str) -> Any:
    _check(isinstance(plain, dict), f"{name} is not an object")
    values = {}
    for known in fields(kind):
        optional = known.default is not MISSING or known.default_factory is not MISSING
        if plain.get(known.name) is not None or (known.name in plain and not optional):
            where = known.name if name == "record" else f"{name} {known.name}"
            values[known.name] = _made(_kinds(kind)[known.name], plain[known.name], where)
        elif not optional:
            raise _Malformed(f"'{known.name}' is missing in the {name}")
    return kind(**values)


def _number(plain: Any, name: str) -> int | float:
    """As it stands: a whole number where a fraction may be stays one."""
    if plain == INFINITE and name.endswith("ppl"):
        return math.inf
    _check(isinstance(plain, int | float) and not isinstance(plain, bool), f"its {name} is {str(plain)[:80]}")
    try:
        _check(math.isfinite(plain), f"its {name} is {plain}")
    except OverflowError:
        raise _Malformed(f"its {name} is too large") from None
    _check(name not in BOUNDED or 0 <= plain < MOST, f"its {name} is {plain}")
    return plain


def _check(right: bool, reason: str) -> None:
    if not right:
        raise _Malformed(reason)
