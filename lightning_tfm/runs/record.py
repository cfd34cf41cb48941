"""What a finished run leaves, as dataclasses: written once by its training as result.json, read by everything else.

A field's name is its key in the file, and the order is the same. Fields with a default are newer than the first
records, or are only shown: if a record lacks them they are None or empty. Unknown keys are skipped.
"""

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Lt

from lightning_tfm.runs.process.process_id import ProcessId
from lightning_tfm.schema import Flaw, Kept, Kind, Number, Overflowing, infinite_as_text, make_from
from lightning_tfm.sums import KEY, has_checksum, intact

FINISHED = "finished"
CURVES = {"dev_ppl": "dev/ppl", "dev_nll": "dev/nll", "loss": "train/loss", "nll": "train/nll", "lr": "train/lr"}
CURVES |= {"grad_norm": "train/grad_norm", "target_tokens": "train/target_tokens", "seconds": "train/seconds"}
"""key in metrics.jsonl -> its name in W&B and TensorBoard"""

MOST = 10**11
"""beyond any step and any time: as seconds since 1970 it is the year 5138"""
Count = Annotated[int, Ge(0), Lt(MOST)]
Bounded = Count | Annotated[float, Ge(0), Lt(MOST)]


@dataclass(frozen=True, kw_only=True)
class LengthClass:
    """The lines of a text whose length is in one class."""

    side: str
    """whose length: source, target, the longer of the two; `both`: by the longer, all from half a training length to a
    whole one, and all beyond"""
    above: Number
    """the class's lengths are above this many training lengths, and reach `upto`"""
    upto: Number
    sentences: int
    nll: Number
    """in nats, summed over the lines"""
    tokens: int
    """pieces of the references with their end tokens"""
    bleu: Number | None = None
    """None, as are the next two, for a text without a source"""
    pieces: int | None = None
    """of the translations with their end tokens: over `tokens` the length ratio"""
    early: int | None = None
    """translations with less than half as many pieces as their references"""


@dataclass(frozen=True, kw_only=True)
class ByLength:
    """A text scored by length up to several times the training length (data/sources/length_buckets.py)."""

    limit: int
    """the training length, in pieces with the end token"""
    classes: list[LengthClass]


@dataclass(frozen=True)
class Measure:
    """A score in one more metric."""

    value: Number
    signature: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Score(Kept):
    """Perplexity of one text under one set of weights, and BLEU if it is a translation."""

    split: str = ""
    weights: str
    """last or average"""
    ppl: Overflowing
    """per piece, end token included; infinite where exp(nll / tokens) overflows (in the file: "Infinity")"""
    nll: Number
    """in nats, summed over the text"""
    tokens: int
    """pieces that `nll` is summed over"""
    bleu: Number | None = None
    """between 0 and 100; None for a text without a source"""
    signature: str = ""
    """sacreBLEU's"""
    sentences: int | None = None
    words: int | None = None
    """of the raw references, separated by white space (bleu.text_size); the end of a sentence is not one"""
    characters: int | None = None
    """of the raw references: Unicode code points, without the ends of lines"""
    nll_per_word: Number | None = None
    """`nll`, which holds the end tokens' share, over `words`: no segmentation changes it; None in old records"""
    nll_per_character: Number | None = None
    bytes: int | None = None
    """of the raw lines in UTF-8, without their ends; for a text without a source, instead of `characters`"""
    nll_per_byte: Number | None = None
    evaluation_hash: str
    by_length: ByLength | None = None
    """of the lines that data.long names"""
    files: dict[str, str] = field(default_factory=dict)
    """files beside scores/<evaluation>/<split>.json that belong to it: name -> sha256"""
    run: str = ""
    """in such a file, the folder of the run that was scored; older ones, and result.json, do not hold it"""
    measures: dict[str, Measure] = field(default_factory=dict)
    """what evaluation.metrics names and `validate` has added, in the file as NAME and NAME_signature: chrf, paper_bleu
    (where sacremoses is installed)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """Trainable numbers by part."""

    embedding: int | None = None
    encoder: int | None = None
    decoder: int | None = None
    positions: int | None = None
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Wall-clock time by part, of all attempts up to the last checkpoint of each."""

    train: Number
    validate: Number | None = None
    checkpoint: Number | None = None
    data: Number | None = None
    decode: Number | None = None
    """scoring after training"""
    total: Number


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSeconds:
    """Parts of the seconds of training."""

    forward: Number
    backward: Number
    optimizer: Number


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
class Segment(Kept):
    """Steps of a run that one attempt made and that count, and where it made them.

    An earlier version's part of a run has no attempt, machine or versions.
    """

    attempt: Count | None = None
    first: int = 1
    last: int
    seconds: Number | None = None
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord(Kept):
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
    steps: Count | None = None
    target_tokens: int | None = None
    """true tokens that were trained on, as are `source_tokens`"""
    source_tokens: int | None = None
    padding: Number | None = None
    """share of the cells of all batches, of all processes; None where not all were counted"""
    flops: Number
    """of training, by formula (model/flops.py)"""
    seconds: Seconds
    train_seconds: TrainSeconds | None = None
    tokens_per_second: Bounded | None = None
    """target tokens over the seconds of training and data; so are `flops_per_second`"""
    flops_per_second: Number | None = None
    matrix_flops_per_second: Number | None = None
    """of earlier records, as is `utilisation`: the speed of a product of square matrices, and the run's share of it"""
    utilisation: Number | None = None
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
    started: Bounded | None = None
    """when its first attempt was claimed (by earlier versions its last); seconds since 1970, as is `ended`"""
    ended: Bounded | None = None
    ran: list[Segment] = field(default_factory=list)
    """where the steps were made, the first ones first"""
    files: dict[str, str] = field(default_factory=dict)
    """files of the run's folder that belong to the record: name -> sha256"""

    @property
    def contradiction(self) -> str:
        """Contradictions within the record; empty if none. Versions up to 2026-11-22 could write them."""
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


@dataclass(frozen=True)
class Progress(Kept):
    """How far a run is: its progress.json."""

    step: Count
    steps: Count
    tokens_per_second: Bounded
    phase: str
    time: Bounded
    """time of this record; seconds since 1970"""
    attempt: Count = 0
    """which attempt wrote it; 0 in records from before this was kept"""


@dataclass(frozen=True)
class Outcome(Kept):
    """How the last attempt at a run ended: its outcome.json."""

    outcome: str
    """as in outcome.TABLE"""
    reason: str
    step: Count | None = None
    attempt: Count | None = None


@dataclass(frozen=True)
class Called(Kept):
    """What a run was last requested as: its cell.json."""

    row: str
    seed: int


@dataclass(frozen=True)
class Claimed(Kept):
    """One of the attempts at a run: attempts/<number>.json. Times are seconds since 1970."""

    number: Count
    token: str
    owner: ProcessId
    time: Bounded
    ended: Bounded | None = None


@dataclass(frozen=True)
class Missing:
    """Why there is no record."""

    reason: str
    damaged: bool = False
    """there is a file, but no record of a run in it"""
    diverged: bool = False
    """the run was trained, and its training diverged (runs/divergence.py)"""


def to_plain(record: RunRecord | Score) -> dict[str, Any]:
    """The content of its file, except the checksum (sums.with_checksum). Fields that are newer are omitted if empty."""
    plain = asdict(record)
    for part in (plain, *plain.get("scores", {}).values()):
        untranslated = ["bleu", "signature"] if part.get("bleu", 0) is None else []
        for name in [*untranslated, *(name for name in OPTIONAL_IN_OLD_RECORDS if name in part and not part[name])]:
            del part[name]
        for name, added in part.pop("measures", {}).items():
            part |= {name: added["value"], f"{name}_signature": added["signature"]}
        part |= {"ppl": infinite_as_text(part["ppl"])} if "ppl" in part else {}
    return plain


def read_record(path: Path) -> RunRecord | Missing:
    """The record in `path` (a run's result.json), checked: its numbers are usable, and it is of this run."""
    record = _read(path, from_plain)
    if isinstance(record, RunRecord) and record.training_hash[:16] != path.parent.name:
        return Missing(f"it is the record of run {record.training_hash[:16]}", damaged=True)
    if isinstance(record, RunRecord) and record.contradiction:
        return Missing(record.contradiction, damaged=True)
    return record


OPTIONAL_IN_OLD_RECORDS = (
    "ran files words characters nll_per_word nll_per_character bytes nll_per_byte by_length run".split()
)
"""newer fields, which may be missing"""
Small = TypeVar("Small", Progress, Outcome, Called, Claimed)


def read_small(kind: type[Small], path: Path) -> Small | None:
    """A record of the run folder that is not result.json; None where there is none. Raises ValueError."""
    record = _read(path, lambda plain: _of_file(kind, plain))
    if isinstance(record, Missing) and record.damaged:
        raise ValueError(record.reason)
    return None if isinstance(record, Missing) else record


def read_score(path: Path) -> Score | Missing:
    """The score in `path` (a run's scores/<evaluation>/<split>.json).

    Without a checksum it is damaged, unless the run is of a version that wrote none: so its result.json says.
    """
    score = _read(path, lambda plain: _of_file(Score, _check_translated(_score_with_measures(plain, path))))
    if isinstance(score, Score) and score.run not in ("", path.parents[2].name):
        return Missing(f"{path.name} is the score of run {score.run}", damaged=True)
    return score


def _score_with_measures(plain: Any, path: Path) -> Any:
    """A score with its measures. Raises Flaw where it lacks the checksum that its run's record has."""
    result = path.parents[2] / "result.json"
    if (
        isinstance(plain, dict)
        and KEY not in plain
        and result.is_file()
        and has_checksum(_parse_json(result.read_bytes()))
    ):
        raise Flaw([], "its checksum is missing")
    return _with_measures(plain)


def _check_translated(plain: Any, at: str = "") -> Any:
    """`plain`, a score. Raises Flaw where it lacks BLEU but the text has a source."""
    if isinstance(plain, dict) and "nll_per_byte" not in plain:
        for key in ("bleu", "signature"):
            if plain.get(key) is None:
                raise Flaw([], f"the key '{at}{key}' is missing")
    return plain


def _with_measures(plain: Any) -> Any:
    """What `validate` has added as one field."""
    if not isinstance(plain, dict):
        return plain
    names = (key.removesuffix("_signature") for key in plain if key.endswith("_signature"))
    measures = {name: {"value": plain.get(name), "signature": plain[f"{name}_signature"]} for name in names}
    return plain | {"measures": {name: measure for name, measure in measures.items() if measure["value"] is not None}}


def segments(plain: list[dict[str, Any]]) -> list[Segment]:
    """Where the steps of a run were made, from its checkpoint. Raises ValueError."""
    return [_of_file(Segment, segment) for segment in plain]


def from_plain(plain: Any) -> RunRecord | Missing:
    """The record in the content of a result.json. Raises ValueError naming what is wrong."""
    status = plain.get("status") if isinstance(plain, dict) else None
    if status is None:
        raise Flaw([], "the key 'status' is missing")
    if status != FINISHED:
        return Missing(str(status))
    scores = plain.get("scores")
    for name, score in scores.items() if isinstance(scores, dict) else ():
        _check_translated(score, f"scores.{name}.")
    if isinstance(scores, dict):
        plain = plain | {"scores": {name: _with_measures(score_of) for name, score_of in scores.items()}}
    return _of_file(RunRecord, plain)


def _read(path: Path, make: Any) -> Any:
    try:
        text = path.read_bytes()
        plain = _parse_json(text)
        if not intact(plain):
            wrong = "does not match" if KEY in plain else "is missing"
            return Missing(f"its record is damaged: its checksum {wrong}", damaged=True)
        return make(plain)
    except FileNotFoundError:
        return Missing("there is none")
    except json.JSONDecodeError as error:
        return Missing(f"its record cannot be read: not valid JSON ({error})", damaged=True)
    except Flaw as error:
        return Missing(f"its record is malformed: {error}", damaged=True)
    except (OSError, ValueError, RecursionError) as error:
        return Missing(f"its record cannot be read: {error}", damaged=True)


def _parse_json(text: bytes) -> Any:
    from pydantic_core import from_json

    try:
        return from_json(text)  # in a third of json's time
    except ValueError:
        return json.loads(text)  # which says where


def _of_file(kind: type[Kind], plain: Any) -> Kind:
    """Raises Flaw."""
    with suppress(Flaw):  # a null that means a default
        return make_from(kind, plain, parsed=True)
    return make_from(kind, _without_nulls(plain), parsed=True)


def _without_nulls(plain: Any) -> Any:
    """The content of a record without its nulls."""
    if isinstance(plain, dict):
        return {key: _without_nulls(value) for key, value in plain.items() if value is not None}
    return [_without_nulls(value) for value in plain] if isinstance(plain, list) else plain


def without_folders(word: str) -> str:
    """An argument as a record may show it: an absolute path only by its name, as a machine's folders are private."""
    return re.sub(r"(?<![^=,:\s])/(?!/)[^,:\s]*", lambda path: Path(path[0]).name, word)
