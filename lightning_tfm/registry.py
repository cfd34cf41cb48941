"""What ships with the package, each part declared once. No torch.

A part is one class in the module of its kind (model/norms.py, model/positions.py, …) and one line here. What finds it,
counts it, draws it, exports it, lists it in help and documents, and tests it reads its traits from this line. A class
defined by the user has the same traits as attributes, under the same names, formulas as static methods; it inherits
those of a class that ships, and has defaults for the rest.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lightning_tfm.errors import UserError, nearest

if TYPE_CHECKING:
    from lightning_tfm.model.config import Model

Formula = Callable[["Model"], int]


@dataclass(frozen=True)
class Part:
    name: str
    """what a field of an experiment holds"""
    cls: str
    """the class, in the module of its kind; `module:Class` in another one of that room, which is loaded by this name"""
    label: str = ""
    """its name in pictures; empty: `name`"""
    exports: str = ""
    """what CTranslate2 calls it; empty: it does not support it"""
    parameter_count: Any = None
    """formula of its trainable numbers by the sizes: of one norm, of one feed-forward, of a positional scheme in both
    stacks, of a layer type (model, inner width, causal, bias); None: only the built model knows"""
    source: bool = field(default=True, kw_only=True)
    """of a corpus: whether its text has one"""
    generated: bool = field(default=False, kw_only=True)
    """of a corpus: whether it makes as many pairs as data.pairs asks for"""


@dataclass(frozen=True)
class FeedForward(Part):
    weights: Formula | None = None
    """those in matrices, each multiplied once for every position"""
    width: Formula | None = None
    """inner channels"""


@dataclass(frozen=True)
class Scheme(Part):
    acts: str = ""
    """where: "embedding", "rotation" (of queries and keys) or "scores\""""
    shared: bool = False
    """whether all layers of a stack have the same one, of schemes within attention"""
    ends_at: str = ""
    """field of the model that is its longest sequence; empty: it has none"""
    must_be_even: str = ""
    """field of the model that it needs to be even"""
    sees_order: bool = True
    """whether it gives the encoder the order of the pieces"""
    reads: tuple[str, ...] = ()
    """fields of the model that few parts read; of a user-defined class all may act"""
    flops: Callable[["Model"], tuple[int, int, int]] = lambda m: (0, 0, 0)
    """operations of its matrix products in one layer, forward and backward: for each query, for each query and key, and
    for each cell of a batch's T × S"""

    def check(self, m: "Model") -> None:
        """Raise UserError where sizes do not fit it."""
        _check_even(self.must_be_even, m, f"model.positions={m.positions}")


def _check_even(field: str, m: "Model", needs: str) -> None:
    if field and getattr(m, field) % 2:
        raise UserError(f"model.{field}={getattr(m, field)}: {needs} needs an even {field}")


@dataclass(frozen=True)
class Attention(Part):
    """`parameter_count` are those of one attention (model), apart from its projections."""

    flops_per_query: Formula = lambda m: 0
    """forward, per query, apart from those of the projections; a multiplication with its addition counts as two"""
    flops_per_pair: Formula = lambda m: 0
    """forward, per query and key, apart from those of score and sum"""
    compares: bool = True
    """whether it depends on queries and keys, by which positional schemes within attention act"""
    must_be_even: str = ""
    """field of the model that it needs to be even"""

    def check(self, m: "Model") -> None:
        """Raise UserError where sizes do not fit it."""
        _check_even(self.must_be_even, m, f"model.attention={m.attention}")


@dataclass(frozen=True)
class Layer(Part):
    heads: bool = False
    """whether it has the projections of attention, and as many numbers"""
    recurrent: bool = False
    takes: tuple[str, ...] = ()
    """where a positional scheme may act in it"""
    pairs: Callable[["Model", Any], Any] = lambda m, n: 0 * n
    """queries times keys that it compares in texts of n pieces, an array"""
    flops_per_pair: Formula = lambda m: 2 * m.h * (m.d_k + m.d_v)
    """forward, for each of them, in its score and in the sum; a multiplication with its addition counts as two"""
    alike: bool = False
    """whether all layers of a stack reach equally far"""
    sees_order: bool = True
    """whether it encodes the order of the pieces without a positional scheme"""
    reads: tuple[str, ...] = ()


FORMULAS = ("parameter_count", "weights", "width", "flops", "pairs", "flops_per_query", "flops_per_pair")
OF_ONE_CLASS = ("name", "cls", "label", "exports", "parameter_count", "weights", "width", "flops_per_query")
"""traits that a user-defined class does not inherit from one that ships"""
RENAMED = {
    "numbers": "parameter_count",
    "even": "must_be_even",
    "each_query": "flops_per_query, which counts a multiplication with its addition as two",
    "each_pair": "flops_per_pair, which counts a multiplication with its addition as two",
}
"""earlier names of traits, which are refused -> today's"""
P = TypeVar("P", bound=Part)


class Kind(dict[str, P], Generic[P]):
    """All parts of one kind, by name, the paper's first; `field` names one of them, or an import path.

    `bases` are a module and the names of those of its classes from which a user-defined one must derive.
    """

    def __init__(self, field: str, kind: type[P], bases: tuple[str, ...], *ships: P):
        super().__init__((part.name, part) for part in ships)
        self.field, self.kind, self.bases = field, kind, bases

    def traits(self, name: str) -> P:
        """Of what ships, or of a user-defined class as far as it is imported."""
        if name in self:
            return self[name]
        module, _, attribute = name.replace(":", ".").rpartition(".")
        owner, traits = getattr(sys.modules.get(module), attribute, None), {}
        for c in reversed(getattr(owner, "__mro__", ())):
            part = next((p for p in self.values() if (c.__module__, c.__name__) == (self.bases[0], p.cls)), None)
            for f in fields(self.kind):
                own = vars(c).get(f.name)
                if part is not None and f.name not in OF_ONE_CLASS:
                    traits[f.name] = getattr(part, f.name)
                elif isinstance(own, staticmethod if f.name in FORMULAS else type(f.default)):
                    traits[f.name] = getattr(c, f.name)
        return self.kind(**traits | {"name": name, "cls": attribute})

    def find(self, name: str, home: str) -> Any:
        """The class of that name in the module `home`, or at that import path, `module.Class` or `module:Class`.

        Raises UserError naming the nearest name, what the import said, or the bases, one of which it must have.
        """
        if name in self:
            beside, _, cls = self[name].cls.rpartition(":")
            return getattr(import_module(f"lightning_tfm.{beside}" if beside else home), cls)
        if not all(name.replace(":", ".").rpartition(".")[0].split(".")):
            raise UserError(f"{self.field}='{name}': {nearest(name, self)}, or the import path of a class")
        from lightning_tfm.user_code.modules import class_at

        part = class_at(name, f"{self.field}=")
        module, *names = self.bases or ("",)
        parents = {c.__name__ for c in getattr(part, "__mro__", ()) if c.__module__ == module}
        if names and not parents & {*names}:
            raise UserError(f"{self.field}='{name}' must derive from {' or '.join(names)} ({module})")
        for old in (old for c in getattr(part, "__mro__", ()) for old in RENAMED if old in vars(c)):
            if isinstance(inspect.getattr_static(part, old), (staticmethod, str)):
                raise UserError(f"{self.field}='{name}': its trait `{old}` is now called {RENAMED[old]}")
        return part

    def count(self, name: str, *sizes: Any) -> int:
        """Trainable numbers of that part by its formula. Raises UserError where there is none or it fails."""
        formula = self.traits(name).parameter_count
        if formula is None:
            raise UserError(f"{self.field}={name}: only the built model knows its number of parameters")
        try:
            return int(formula(*sizes))
        except TypeError as error:
            raise UserError(f"{self.field}={name}: its parameter_count: {error}") from error


# --- formulas ---


def attention_weights(m: "Model") -> int:
    """Numbers in the four projections of an attention."""
    return m.d_model * m.h * (m.d_k + m.d_v) + m.d_model * (m.kv_heads or m.h) * (m.d_k + m.d_v)


def attention_parameters(m: "Model") -> int:
    G = m.kv_heads or m.h
    norms = (2 * m.d_k if m.qk_norm else 0) + {"cosine": m.h, "additive": m.h * m.d_k}.get(m.scores, 0)
    biases = m.h * m.d_k + G * (m.d_k + m.d_v) + m.d_model if m.attention_bias else 0
    return attention_weights(m) + norms + biases


def _in_blocks(m: "Model", n: Any) -> Any:
    """Restricted self-attention works in blocks of r queries, each with the 2r - 1 keys that any of them sees; texts
    that are not longer than these are compared as a whole."""
    r, keys = m.neighbourhood, 2 * m.neighbourhood - 1
    return (n <= keys) * n * n + (n > keys) * (-(-n // r) * r * keys)


def _recurrent(gates: int) -> Callable[["Model", int, bool, bool], int]:
    def parameter_count(m: "Model", width: int, causal: bool, bias: bool) -> int:
        directions = 1 if causal else 2
        inner = width // directions
        return directions * gates * inner * (m.d_model + inner + 2 * bias) + width * m.d_model

    return parameter_count


def gated_width(d_model: int, d_ff: int, bias: bool = True) -> int:
    """Inner width of a gated feed-forward with as many parameters as an ungated one of width d_ff.

    Both are counted with biases where they have them; the width with the nearest count, about 2/3 d_ff (Shazeer 2020).
    """
    return max(1, round(d_ff * (2 * d_model + bias) / (3 * d_model + 2 * bias)))


def _feed_forward(name: str, cls: str, label: str, matrices: int, exports: str = "") -> FeedForward:
    """With two matrices, or three: then one of the first two gates the other."""

    def width(m: "Model") -> int:
        return gated_width(m.d_model, m.d_ff, m.bias) if matrices == 3 else m.d_ff

    def weights(m: "Model") -> int:
        return matrices * m.d_model * width(m)

    def parameter_count(m: "Model") -> int:
        return weights(m) + m.bias * ((matrices - 1) * width(m) + m.d_model)

    return FeedForward(name, cls, label, exports, parameter_count, weights, width)


def _distances(m: "Model") -> int:
    """That have their own vector."""
    return 2 * m.clip + 1


T5_BUCKETS, FIRE_WIDTH = 32, 32
"""rows of T5's table, and inner width of FIRE's network"""


# --- what ships ---

NORMS = Kind(
    "model.norm_kind",
    Part,
    ("lightning_tfm.model.norms", "Norm"),
    Part("layer", "LayerNorm", "layer norm", "LayerNorm", lambda m: (1 + m.bias) * m.d_model),
    Part("rms", "RMSNorm", "RMS norm", "RMSNorm", lambda m: m.d_model),
)
FEED_FORWARDS = Kind(
    "model.feed_forward",
    FeedForward,
    ("lightning_tfm.model.feed_forward", "FeedForward"),
    _feed_forward("relu", "ReLU", "ReLU", 2, "RELU"),
    _feed_forward("gelu", "GELU", "GELU", 2, "GELU"),
    _feed_forward("relu2", "SquaredReLU", "ReLU squared", 2),
    _feed_forward("swiglu", "SwiGLU", "SwiGLU", 3, "SWISH"),
    _feed_forward("geglu", "GEGLU", "GEGLU", 3, "GELU"),
)
_table: dict[str, Any] = {"acts": "embedding", "exports": "table", "parameter_count": lambda m: 0}
_learned: dict[str, Any] = _table | {
    "parameter_count": lambda m: 2 * m.max_positions * m.d_model,
    "ends_at": "max_positions",
}
SCHEMES = Kind(
    "model.positions",
    Scheme,
    ("lightning_tfm.model.positions", "EmbeddingScheme", "RotationScheme", "BiasScheme"),
    Scheme("sinusoidal", "Sinusoidal", **_table, must_be_even="d_model"),
    Scheme("learned", "Learned", **_learned),
    Scheme("learned_scaled", "LearnedScaled", **_learned),
    Scheme("none", "NoPositions", **_table, sees_order=False),
    Scheme("rotary", "Rotary", acts="rotation", parameter_count=lambda m: 0, must_be_even="d_k"),
    Scheme(
        "shaw",
        "Shaw",
        acts="scores",
        parameter_count=lambda m: 2 * m.N * _distances(m) * m.d_k,
        reads=("clip",),
        flops=lambda m: (6 * m.h * _distances(m) * m.d_k, 0, 0),
    ),
    Scheme(
        "shaw_values",
        "ShawValues",
        acts="scores",
        parameter_count=lambda m: 2 * m.N * _distances(m) * (m.d_k + m.d_v),
        reads=("clip",),
        flops=lambda m: (6 * m.h * _distances(m) * (m.d_k + m.d_v), 4 * m.h * _distances(m), 0),
    ),
    Scheme("t5", "T5", acts="scores", parameter_count=lambda m: 2 * T5_BUCKETS * m.h, shared=True),
    Scheme("alibi", "ALiBi", acts="scores", parameter_count=lambda m: 0),
    Scheme("kerple", "Kerple", acts="scores", parameter_count=lambda m: 2 * m.N * 2 * m.h),
    Scheme(
        "fire",
        "Fire",
        acts="scores",
        parameter_count=lambda m: 2 * (FIRE_WIDTH * (2 + m.h) + m.h + 2),
        shared=True,
        flops=lambda m: (0, 0, 6 * FIRE_WIDTH * (1 + m.h)),
    ),
)
_heads: dict[str, Any] = {"heads": True, "alike": True}
_steps: dict[str, Any] = {"recurrent": True, "alike": True, "reads": ("layer_width",)}
_kernel: dict[str, Any] = {"reads": ("layer_width", "kernel")}
_dense: dict[str, Any] = _kernel | {
    "parameter_count": lambda m, width, causal, bias: width * (2 * (m.kernel * m.d_model + bias) + m.d_model)
}
_apart: dict[str, Any] = _kernel | {
    "parameter_count": lambda m, width, causal, bias: m.d_model * (m.kernel + bias) + width * (3 * m.d_model + 2 * bias)
}
_full: dict[str, Any] = {"takes": ("rotation", "scores"), "pairs": lambda m, n: n * n, "sees_order": False}
_near: dict[str, Any] = {"takes": ("rotation",), "pairs": _in_blocks, "reads": ("neighbourhood",)}
LAYERS = Kind(
    "model.layer",
    Layer,
    ("lightning_tfm.model.layer_types", "LayerType"),
    Layer("attention", "SelfAttention", "self-attention", "MultiHeadAttention", **_heads, **_full),
    Layer("restricted", "RestrictedSelfAttention", "restricted self-attention", **_heads, **_near),
    Layer("lstm", "LSTM", "LSTM", parameter_count=_recurrent(4), **_steps),
    Layer("gru", "GRU", "GRU", parameter_count=_recurrent(3), **_steps),
    Layer("convolution", "Convolution", alike=True, **_dense),
    Layer("separable", "Separable", "separable convolution", alike=True, **_apart),
    Layer("dilated", "Dilated", "dilated convolution", **_dense),
)
ATTENTIONS = Kind(
    "model.attention",
    Attention,
    ("lightning_tfm.model.attention_types", "AttentionType"),
    Attention("softmax", "Softmax", exports="MultiHeadAttention", parameter_count=lambda m: 0),
    Attention(
        "talking",
        "TalkingHeads",
        "talking heads",
        parameter_count=lambda m: 2 * m.h * m.h,
        flops_per_pair=lambda m: 4 * m.h * m.h,
    ),
    Attention(
        "gated",
        "Gated",
        "gated attention",
        parameter_count=lambda m: m.d_model * m.h * m.d_v,
        flops_per_query=lambda m: 2 * m.d_model * m.h * m.d_v,
    ),
    Attention(
        "differential",
        "Differential",
        "differential attention",
        parameter_count=lambda m: 2 * m.d_k + m.d_v,
        must_be_even="d_k",
    ),
    Attention("sigmoid", "Sigmoid", "sigmoid attention", parameter_count=lambda m: 0),
    Attention("mean", "Mean", "mean of the values", parameter_count=lambda m: 0, compares=False),
)
OPTIMIZERS = Kind(
    "training.optimizer",
    Part,
    ("torch.optim.optimizer", "Optimizer"),
    Part("adam", "adam"),
    Part("adamw", "adamw"),
    Part("muon", "MuonWithAdamW"),
)
SCHEDULES = Kind(
    "training.schedule",
    Part,
    ("lightning_tfm.training.schedule", "Schedule"),
    Part("inverse_sqrt", "InverseSqrt"),
    Part("linear", "Linear"),
    Part("cosine", "Cosine"),
    Part("wsd", "WSD"),
)
CORPORA = Kind(
    "data.corpus",
    Part,
    (),
    Part("builtin", "BuiltinCorpus", "a synthetic language", generated=True),
    Part("files", "FilesCorpus"),
    Part("lines", "data.sources.monolingual:LinesCorpus", source=False),
    Part(
        "builtin-lines", "data.sources.monolingual:BuiltinLines", "a synthetic language", source=False, generated=True
    ),
    Part("trees", "data.trees:BuiltinTrees", "a synthetic treebank", generated=True),
    Part("treebank", "data.treebank:TreebankCorpus"),
    Part("scan", "data.sources.scan:ScanCorpus", "SCAN"),
    *(
        Part(name, "data.wmt.official:OfficialCorpus")
        for name in ("wmt14-en-de", "wmt14-en-fr", "multi30k", "wmt16-en-de-bpe")
    ),
)

KINDS: dict[str, Kind[Any]] = {
    k.field: k for k in (SCHEMES, FEED_FORWARDS, NORMS, LAYERS, ATTENTIONS, OPTIMIZERS, SCHEDULES, CORPORA)
}
OWN_WEIGHTS = tuple(field for field, kind in KINDS.items() if kind.bases)
"""fields whose classes decide the weights: a user-defined one enters a run's identity. A corpus does by its text"""


def may_act(kind: Kind[Any], name: str, field: str) -> bool:
    """Whether a field that few parts read may act in this one; in a user-defined class it may."""
    return name not in kind or field in kind[name].reads


def own_parts(m: "Model") -> dict[str, str]:
    """Field -> import path, of the parts of a model that are user-defined."""
    named = {key: getattr(m, key.removeprefix("model.")) for key in KINDS if key.startswith("model.")}
    return {key: path for key, path in named.items() if path not in KINDS[key]}


def inner_width(m: "Model", causal: bool) -> int:
    """Channels inside of a recurrent or convolutional layer (config: layer_width).

    By parameters it is the width with the nearest count to self-attention's. Both directions of an encoder's recurrent
    layer count; each has half the width.
    """

    def beyond(width: int) -> int:
        return LAYERS.count(m.layer, m, width, causal, m.bias) - attention_parameters(m)

    step = 2 if LAYERS.traits(m.layer).recurrent and not causal else 1
    if m.layer_width == "d_model":
        return max(step, m.d_model // step * step)
    width = step
    while beyond(width + step) <= 0:
        width += step
    return width + step if beyond(width + step) < -beyond(width) else width
