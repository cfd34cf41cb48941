"""An experiment as frozen data, in the symbols of the paper, and the hashes that identify it.

`Experiment` decides the numbers; `Hardware` decides only how long they take. The two never mix: no field of `Hardware`
enters a hash. Defaults are the paper's base model (Vaswani et al. 2017) and live only here.

Sizes are written at the paper's scale. `Miniature` divides them at the very end (`Experiment.scaled`), so that one list
of rows serves a laptop and a cluster.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from lightning_tfm.errors import UserError
from lightning_tfm.gone import GONE, refuse
from lightning_tfm.model.config import ABOVE_0, AT_LEAST_1, BELOW_1, NOT_NEGATIVE, SHARE
from lightning_tfm.model.config import Model as Model  # the first section of an experiment, for every reader of one
from lightning_tfm.registry import CORPORA, LAYERS, SCHEMES, may_act
from lightning_tfm.schema import Flaw, Schema, make_from

T = TypeVar("T", bound=Schema)

NUMERICS_VERSION = 2
"""Raised whenever the same experiment yields different losses than before (see tests/regression)."""

BFLOAT16_VERSION = 2
"""The same for losses that differ from before only under bfloat16."""

AUTOMATIC = {"range": ("must be at least 0 (0 leaves it to the program)", lambda value: value >= 0)}
BEAMS = {"range": ("must be in [1, 1000]", lambda value: 1 <= value <= 1000)}
"""above which a beam search does not end, or does not fit into memory; the paper's has 4, its parser 21"""


@dataclass(frozen=True)
class Data(Schema):
    """Where the data come from and how they become tokens (5.1)."""

    corpus: str = "builtin"
    """{parts}, or the import path of your own class"""
    folder: str = ""
    """folder of parallel files `<split>.<language>` or `<split>.<language>.gz`, for corpus=files; of `<split>.txt`, for
    corpus=lines"""
    source: str = "en"
    """language of the source, the suffix of its files"""
    target: str = "de"
    """language of the target, the suffix of its files"""
    train: str = "train"
    """name of the training split; several joined by '+'"""
    dev: str = "val"
    """name of the split that tables are scored on"""
    test: str = "test"
    """name of the held-out split; empty for none"""
    pairs: int = field(default=5000, metadata=ABOVE_0)
    """training pairs that the built-in corpus generates"""
    corpus_seed: int = 0
    """seed of the built-in corpus"""
    tokenizer: Literal["sentencepiece", "pieces"] = "sentencepiece"
    """our own byte-pair encoding, or text that is already in tokens, split at spaces and joined at `@@ `"""
    vocabulary: str = ""
    """for tokenizer=pieces: file in the folder with one token per line; a fetched corpus brings its own"""
    vocab_size: int = field(default=37000, metadata=ABOVE_0)
    """tokens of the byte-pair encoding shared by both languages, the four special ones included"""
    normalization: str = "identity"
    """SentencePiece normalisation rule; identity leaves the text unchanged"""
    byte_fallback: bool = False
    """spell characters that the vocabulary lacks in bytes instead of the unknown token"""
    max_len: int = field(default=256, metadata=ABOVE_0)
    """training pairs with more tokens on a side (end token included) are counted and left out; dev and test never"""
    bad_lines: Literal["error", "drop"] = "error"
    """at an empty or broken line: stop and name it, or (training only) count its pair and leave it out"""
    max_words: int = field(default=0, metadata=NOT_NEGATIVE)
    """cleaning: training pairs with more words on a side are counted and left out; 0: this rule is off. Without a
    source, lines of all splits are packed to that many words, and 0 leaves each unchanged"""
    max_ratio: float = field(default=0.0, metadata=NOT_NEGATIVE)
    """cleaning: drop training pairs with a side of more than this many times the other's words, plus 3; 0: off"""
    check_encoding: bool = False
    """cleaning: drop training pairs with replacement characters or doubly encoded UTF-8"""
    share: float = field(default=1.0, metadata=SHARE)
    """share of the training pairs to use, chosen by a hash of each pair: smaller shares are subsets of larger ones"""
    drop_duplicates: bool = False
    """cleaning: drop training pairs that occurred before, recognised by 8-byte hashes"""
    long: str = ""
    """split that is scored by length up to five times the training length: the built-in corpus makes one, `long`; with
    files any split, dev too; empty for none"""
    long_from: int = field(default=0, metadata=NOT_NEGATIVE)
    """tokens, end token included, beyond which its lines are long; 0: data.max_len"""

    @property
    def training_length(self) -> int:
        """The unit that lines of `long` are measured in."""
        return self.long_from or self.max_len

    @property
    def translated(self) -> bool:
        """Whether there is a source; without one the text is a language model's."""
        return self.corpus not in CORPORA or CORPORA[self.corpus].source

    @property
    def languages(self) -> tuple[str, str]:
        """Source, empty where there is none, and target, as they are shown: the built-in corpus has its own."""
        if not self.translated:
            return "", "txt"
        return ("xa", "xb") if self.corpus == "builtin" else (self.source, self.target)


@dataclass(frozen=True)
class Training(Schema):
    """Batch, optimiser, schedule, regularisation, budget (5.1 to 5.4)."""

    tokens: int = field(default=25000, metadata=ABOVE_0)
    """at most this many source tokens, and as many target tokens, in an optimizer step, over all devices"""
    steps: int = field(default=100_000, metadata=AT_LEAST_1)
    """optimizer steps"""
    warmup: int = field(default=4000, metadata=ABOVE_0)
    """steps over which the learning rate rises"""
    lr_factor: float = field(default=1.0, metadata=ABOVE_0)
    """factor on the paper's schedule"""
    schedule: str = "inverse_sqrt"
    """{parts}, or the import path of your own class; after the warm-up: the paper's step^-0.5, a straight line or half
    a cosine to zero at the last step, or the peak held and then a straight line (warm-up, stable, decay)"""
    beta1: float = field(default=0.9, metadata=BELOW_1)
    """decay of Adam's mean of gradients (5.3)"""
    beta2: float = field(default=0.98, metadata=BELOW_1)
    """decay of Adam's mean of squared gradients (5.3)"""
    adam_eps: float = field(default=1e-9, metadata=ABOVE_0)
    """added to the root of that mean (5.3)"""
    clip_norm: float = field(default=0.0, metadata=NOT_NEGATIVE)
    """upper limit of the gradient's norm; 0 for none (the paper)"""
    eps_ls: float = field(default=0.1, metadata=BELOW_1)
    """label smoothing"""
    smoothing: Literal["vocabulary", "others"] = "vocabulary"
    """mass spread over the whole vocabulary (the paper's source), or over the V-1 wrong labels (tensor2tensor)"""
    precision: Literal["float32", "bfloat16", "float64", "tfloat32"] = "float32"
    """arithmetic of training; scoring uses the weights' precision; bfloat16: autocast with float32 weights; tfloat32:
    float32 whose products round their factors to 10 bits, on NVIDIA GPUs"""
    masks: Literal["sentence", "device"] = "sentence"
    """dropout masks keyed by sentence (the same on any hardware), or the device's own (equal in distribution)"""
    average_last: int = field(default=0, metadata=NOT_NEGATIVE)
    """snapshots whose average is scored at the end, with the last weights (5 for base, 20 for big in 6.1); 0: none"""
    average_every: int = field(default=1500, metadata=ABOVE_0)
    """steps between these snapshots"""
    seed: int = field(default=1, metadata=NOT_NEGATIVE)
    """decides initial weights, order of the data and dropout"""
    optimizer: str = "adam"
    """{parts}, or the import path of your own class; muon uses AdamW for all but linear maps"""
    weight_decay: float = field(default=0.0, metadata=NOT_NEGATIVE)
    """decay of all matrices and embeddings; adam adds it to the gradient, the others shrink weights by rate times it"""
    cooldown: float = field(default=0.2, metadata=SHARE)
    """share of the steps over which schedule=wsd falls"""


@dataclass(frozen=True)
class Evaluation(Schema):
    """Decoding and scoring (6.1). Changing it retrains nothing."""

    beam: int = field(default=4, metadata=BEAMS)
    """hypotheses kept by beam search; 1 is greedy"""
    alpha: float = field(default=0.6, metadata=NOT_NEGATIVE)
    """length penalty ((5 + length) / 6)^alpha"""
    extra_len: int = field(default=50, metadata=NOT_NEGATIVE)
    """tokens by which a translation may be longer than its source"""
    weights: Literal["last", "average"] = "last"
    """which weights a table scores"""
    bleu_tokenize: str = "13a"
    """sacreBLEU tokenizer"""
    metrics: str = ""
    """further scores joined by '+', e.g. f1+exact (`validate --help` lists them), or your own class, module:Class"""


@dataclass(frozen=True)
class Miniature(Schema):
    """Divisors that shrink the whole paper in proportion; 1 leaves it at full size."""

    width: int = field(default=1, metadata=AT_LEAST_1)
    """divides d_model, d_ff, d_k, d_v"""
    depth: int = field(default=1, metadata=AT_LEAST_1)
    """divides N"""
    steps: int = field(default=1, metadata=AT_LEAST_1)
    """divides the optimizer steps"""


WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


@dataclass(frozen=True)
class Experiment(Schema):
    """Everything that decides the numbers of one run."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    miniature: Miniature = field(default_factory=Miniature)

    def scaled(self, row: str = "experiment") -> "Experiment":
        """The experiment at its true sizes: the miniature applied, its divisors back at 1.

        Raises UserError where a size does not divide, naming `row`, the field and the divisors that work.
        """
        m = self.miniature
        if m == Miniature():
            return self
        divided = {name: (getattr(self.model, name), m.width, "width") for name in WIDTHS}
        divided["N"] = (self.model.N, m.depth, "depth")
        sizes = {name: _divide(row, f"model.{name}", *parts) for name, parts in divided.items()}
        steps = _divide(row, "training.steps", self.training.steps, m.steps, "steps")
        model, training = _with(self.model, **sizes), _with(self.training, steps=steps)
        return _with(self, model=model, training=training, miniature=Miniature())

    def unscaled(self, miniature: Miniature) -> "Experiment":
        """The inverse of `scaled`: an experiment at its true sizes as it is typed over that miniature."""
        sizes: dict[str, Any] = {name: getattr(self.model, name) * miniature.width for name in WIDTHS}
        return replace(
            self,
            model=replace(self.model, N=self.model.N * miniature.depth, **sizes),
            training=replace(self.training, steps=self.training.steps * miniature.steps),
            miniature=miniature,
        )


def _with(own: T, **changes: Any) -> T:
    """As `replace`, in a tenth of the time, which thousands of rows take: nothing here checks itself as it is made."""
    made = object.__new__(type(own))
    vars(made).update(vars(own) | changes)
    return made


def typed_and_trained(typed: Any, trained: Any) -> str:
    """A value as it is typed, with what is trained in brackets where a miniature divides it: "6 (3)"."""
    first, second = (str(value).lower() if isinstance(value, bool) else str(value) for value in (typed, trained))
    return first if first == second else f"{first} ({second})"


def _divide(row: str, name: str, size: int, divisor: int, which: str) -> int:
    if divisor >= 1 and size % divisor == 0 and size // divisor >= 1:
        return size // divisor
    works = [d for d in range(1, size + 1) if size % d == 0]
    raise UserError(
        f"{row}: {name}={size} is not divisible by miniature.{which}={divisor}: to train {size}, "
        f"type {size * divisor}, which is at the paper's scale; or "
        f"divisors that work for this size: {', '.join(map(str, works[:16]))}{', …' if len(works) > 16 else ''}"
    )


@dataclass(frozen=True)
class Hardware(Schema):
    """What decides only how long a run takes; never hashed."""

    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    """auto: the GPU where there is one"""
    devices: int = field(default=1, metadata=AT_LEAST_1)
    """processes on this machine"""
    num_nodes: int = field(default=1, metadata=AT_LEAST_1)
    """machines, with that many processes each"""
    threads: int = field(default=0, metadata=AUTOMATIC)
    """CPU threads of each process; 0 leaves the choice to torch"""
    micro_tokens: int = field(default=0, metadata=NOT_NEGATIVE)
    """at most this many padded tokens in a micro-batch, per device; 0: no limit, and no gradient accumulation"""
    compile: bool = False
    """torch.compile on every layer: for GPUs; on a CPU it costs minutes and gains nothing"""
    kernels: Literal["auto", "all", "masks", "none"] = "auto"
    """formulas that Triton computes on a GPU: all available, dropout masks, bit for bit as a CPU draws them, and the
    loss, equal up to rounding (9.4e-7 on an H100), `auto` where they run; only masks; none"""
    products: Literal["torch", "onednn"] = "torch"
    """what multiplies matrices in float32 on a CPU, equal up to rounding: torch, which uses MKL, or oneDNN: on AMD's
    processors 1.4 to 1.8 times as fast a training from d_model 256 on, slower below; scores are torch's"""
    keep_memory: bool = True
    """on CPUs, glibc keeps memory that a step frees for the next one; giving it back costs some 4 % of a step"""
    profile: bool = False
    """trace ten steps into the run's folder: profile/trace.json and profile/operators.txt"""
    log_every: int = field(default=50, metadata=AT_LEAST_1)
    """steps between two lines of the training record"""
    validate_every: int = field(default=0, metadata=AUTOMATIC)
    """steps between two evaluations of dev perplexity; 0: eight per run"""
    checkpoint_every: int = field(default=0, metadata=AUTOMATIC)
    """steps between two checkpoints; 0: ten per run, at most 1500 apart"""
    checkpoint_minutes: float = field(default=10.0, metadata=AUTOMATIC)
    """minutes after which a checkpoint is due whatever the steps: about the most that a kill loses; 0: only by steps"""


WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
"""types of fields, in words"""


def to_dict(experiment: Any) -> dict[str, Any]:
    """Nested plain dict of a config dataclass."""
    plain = {f.name: getattr(experiment, f.name) for f in dataclasses.fields(experiment)}
    return {key: to_dict(value) if dataclasses.is_dataclass(value) else value for key, value in plain.items()}


def from_dict(cls: type[T], values: dict[str, Any], where: str = "") -> T:
    """Build `cls` strictly from nested dicts: an unknown key or a wrong type is a UserError that names `where`."""
    try:
        return make_from(cls, values, at=where)
    except Flaw as flaw:
        refuse(".".join(filter(None, (where, *flaw.keys))))
        raise UserError(str(flaw)) from None


def from_record(plain: dict[str, Any]) -> Experiment:
    """The experiment that a file of ours holds, whatever version wrote it."""
    return from_dict(Experiment, without_gone(plain))


def without_gone(plain: Any) -> Any:
    """An experiment in a file of ours, without the fields that are gone."""
    if not isinstance(plain, dict):
        return plain
    sections = {part: values for part, values in plain.items() if isinstance(values, dict)}
    return plain | {
        part: {name: value for name, value in values.items() if f"{part}.{name}" not in GONE}
        for part, values in sections.items()
    }


def override(experiment: Experiment, changes: dict[str, Any], where: str) -> Experiment:
    """`experiment` with dotted keys replaced, e.g. {"model.h": 16}; `where` names the origin in errors."""
    changed: dict[str, dict[str, Any]] = {}
    for dotted, value in changes.items():
        section, _, key = dotted.partition(".")
        if section not in vars(experiment) or key not in vars(getattr(experiment, section)):
            refuse(dotted, where=where)
            from lightning_tfm.suggestions import suggestion

            valid = [f"{section}.{key}" for section, keys in to_dict(experiment).items() for key in keys]
            raise UserError(f"{where}: unknown key '{dotted}' (value {value!r}): {suggestion(dotted, valid)}")
        changed.setdefault(section, {})[key] = value
    try:
        new = from_dict(Experiment, changed)
        fields = {part: {key: getattr(getattr(new, part), key) for key in keys} for part, keys in changed.items()}
        return _with(experiment, **{part: _with(getattr(experiment, part), **f) for part, f in fields.items()})
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


IDENTIFYING = {
    Model: (
        "N d_model d_ff h d_k d_v P_drop positions max_positions norm norm_eps attention_bias sinusoid_layout init "
        "target_spaces"
    ).split(),
    Training: (
        "tokens steps warmup lr_factor schedule beta1 beta2 adam_eps clip_norm eps_ls smoothing precision masks "
        "average_last average_every seed"
    ).split(),
    Evaluation: "beam alpha extra_len weights bleu_tokenize".split(),
}
"""The fields of 2026-11-21. They enter the hashes whatever their values, inert or not: this list never changes."""

ADDED: dict[str, Callable[[Experiment], bool]] = {
    "model.feed_forward": lambda e: True,
    "model.norm_kind": lambda e: True,
    "model.bias": lambda e: True,
    "model.kv_heads": lambda e: e.model.kv_heads != e.model.h,
    "model.qk_norm": lambda e: True,
    "model.tie": lambda e: True,
    "model.layer": lambda e: True,
    "model.kernel": lambda e: may_act(LAYERS, e.model.layer, "kernel"),
    "model.neighbourhood": lambda e: may_act(LAYERS, e.model.layer, "neighbourhood"),
    "model.layer_width": lambda e: e.model.layer in LAYERS and may_act(LAYERS, e.model.layer, "layer_width"),
    "model.scores": lambda e: True,
    "model.P_attention": lambda e: True,
    "model.P_ff": lambda e: True,
    "model.clip": lambda e: may_act(SCHEMES, e.model.positions, "clip"),
    "model.attention": lambda e: True,
    "model.attention_where": lambda e: e.model.attention != "softmax" and not e.model.one_stack,
    "model.stack": lambda e: True,
    "training.optimizer": lambda e: True,
    "training.weight_decay": lambda e: True,
    "training.cooldown": lambda e: e.training.schedule == "wsd",
    "evaluation.metrics": lambda e: True,
}
"""Each field added since, `section.name` -> whether it can act in an experiment. It enters a hash only where it can and
differs from its default, so that no release renames a finished run (tests/regression/identities.json)."""


def _identifying(section: str, experiment: Experiment) -> dict[str, Any]:
    """The fields of one section that enter a hash."""
    own = getattr(experiment, section)
    values = {name: _one_spelling(value) for name, value in vars(own).items()}
    identity = {name: values[name] for name in IDENTIFYING[type(own)]}
    for f in dataclasses.fields(own):
        if values[f.name] != f.default and f.name not in identity and ADDED[f"{section}.{f.name}"](experiment):
            identity[f.name] = values[f.name]
    return identity


def _one_spelling(value: Any) -> Any:
    """-0.0 is 0.0, and an import path `module:Class` is `module.Class`."""
    if isinstance(value, str):
        return value.replace(":", ".")
    return value + 0.0 if isinstance(value, float) else value


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def training_identity(experiment: Experiment, train_fingerprint: str, user_classes: dict[str, str]) -> dict[str, Any]:
    """What owns a run directory and its checkpoints: everything that decides the weights, and nothing else.

    `train_fingerprint` covers the training text and the tokenizer, so of the data section only what acts after them is
    named. `user_classes` maps import paths in the experiment to the sha256 of their source.
    """
    exact = experiment.scaled()
    lower = {"bfloat16": BFLOAT16_VERSION} if exact.training.precision == "bfloat16" else {}
    return lower | {
        "numerics": NUMERICS_VERSION,
        "model": _identifying("model", exact),
        "training": _identifying("training", exact),
        "train": train_fingerprint,
        "max_len": exact.data.max_len,
        "user_classes": dict(sorted(user_classes.items())),
    }


def training_hash(identity: dict[str, Any]) -> str:
    """64 hex digits of `training_identity`."""
    return _digest(identity)


def evaluation_hash(experiment: Experiment, set_fingerprint: str) -> str:
    """Owns the scores: decoding, scoring, which weights, which text; the same for all cells of a table."""
    return _digest({"evaluation": _identifying("evaluation", experiment), "set": set_fingerprint})
