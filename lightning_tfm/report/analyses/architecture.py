"""Figure 1 of the paper, drawn from a configuration: every box carries its true sizes and parameters."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from markupsafe import Markup

from lightning_tfm.config import Experiment, Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import attention_type, count_parameters, layer_parameters, memory_parameters
from lightning_tfm.registry import FEED_FORWARDS, LAYERS, NORMS, SCHEMES
from lightning_tfm.report.charts.svg import figure, label, number, tag
from lightning_tfm.study.rows import Row
from lightning_tfm.study.study import Ablation

WIDTH, COLUMN, GAP, LINE = 720, 264, 14, 15
"""of the picture, of a box, between boxes, of a line of text"""
ENCODER_X, DECODER_X = 46, 424
HALF = 372
"""of the width, with the arrow from the encoder to the decoder"""
MOST = 20
"""rows whose architecture a page shows beside base's"""


@dataclass(frozen=True)
class Box:
    """One part of the model; `lines` are its sizes, `parameters` empty where only the built model knows them."""

    title: str
    lines: tuple[str, ...] = ()
    parameters: str = ""

    @property
    def height(self) -> int:
        return 12 + LINE * (1 + len(self.lines))


@dataclass(frozen=True)
class Column:
    """Of the picture, from the bottom up: boxes before the stack, its sub-layers, boxes after it."""

    under: list[Box]
    sublayers: list[list[Box]]
    """each: the text before it, itself, the text after it"""
    over: list[Box]

    @property
    def boxes(self) -> list[Box]:
        return [*self.under, *(box for group in self.sublayers for box in group), *self.over]

    @property
    def height(self) -> int:
        return sum(box.height + GAP for box in self.boxes) + 18 * len(self.sublayers) + 24


def architecture(experiment: Experiment, name: str = "", base: Experiment | None = None, id: str = "") -> Markup:
    """`experiment` and `base` at their true sizes; boxes that differ from those of `base` stand out. `id`: by which a
    page shows parts of it (`narrow_views`)."""
    ours, theirs = columns(experiment), columns(base or experiment)
    height = 70 + max(column.height for column in ours)
    parts, tops = [], []
    one_stack = experiment.model.one_stack
    theirs = theirs if len(theirs) == len(ours) else (theirs[-1],) * len(ours)
    for x, column, other in zip((DECODER_X,) if one_stack else (ENCODER_X, DECODER_X), ours, theirs, strict=True):
        body, top, frame = _column_picture(column, other, x, height - 40, experiment.model.N)
        parts.append(body)
        tops.append((top, frame))
    source, target = experiment.data.languages
    if not one_stack:
        parts.append(_memory(tops[0][0], tops[1][1]))
        parts.append(label(ENCODER_X, height - 12, f"source, {source}", "start", "title"))
    before = f"source, {source}, then " * one_stack
    parts.append(label(DECODER_X, height - 12, f"{before}target, {target}, one token behind", "start", "title"))
    parts.append(label(DECODER_X + COLUMN / 2, 16, "probabilities of the next token", "middle", "title"))
    parts.append(label(8, 16, _head(experiment, name), "start", "label strong"))
    where = "decoder-only" if one_stack else "the encoder and in the decoder"
    description = f"Architecture{f' of {name}' if name else ''}: {experiment.model.N} layers in {where}"
    return figure(WIDTH, height, description, tag("g", "".join(parts), id=id) if id else "".join(parts))


def narrow_views(experiment: Experiment) -> list[str]:
    """Its parts (viewBox) for a narrow page: the decoder and, below, the encoder."""
    ours = columns(experiment)
    height = 70 + max(column.height for column in ours)
    encoder = height - 70 - ours[0].height
    views = [f"{WIDTH - HALF} 0 {HALF} {height}"]
    return views if experiment.model.one_stack else [*views, f"0 {encoder} {HALF} {height - encoder}"]


def _head(experiment: Experiment, name: str) -> str:
    try:
        total = f"{count_parameters(experiment.model, experiment.data.vocab_size)['total']:,} parameters"
    except UserError:
        total = "parameters: known once it is built"
    return f"{name}: {total}" if name else total


# --- boxes ---


def columns(e: Experiment) -> tuple[Column, ...]:
    """Encoder and decoder, or the one stack."""
    m, V = e.model, e.data.vocab_size
    own = {"all": ("", ""), "decoder": ("a matrix of its own", "a matrix with the output")}
    own["none"] = ("a matrix of its own",) * 2
    scheme = SCHEMES.traits(m.positions)
    added = m.positions != "none" and scheme.acts == "embedding"
    positions = f"+ {scheme.label or m.positions} positions" if added else ""
    under = [
        Box(
            "Embedding",
            tuple(line for line in (f"{V:,} × {m.d_model}, times √{m.d_model}", positions, words, _dropout(m)) if line),
            f"{V * m.d_model:,}" if side == 0 or words else "shared",
        )
        for side, words in enumerate(own[m.tie])
    ]
    matrix = {
        "all": "the matrix of the embeddings",
        "decoder": "the matrix of the target's embedding",
        "none": "its own",
    }
    count = f"{V * m.d_model:,}" if m.tie == "none" else ""
    output = Box("Linear and softmax", (f"{m.d_model} → {V:,}, {matrix[m.tie]}",), count)
    final = [] if m.norm == "post" else [_norm(m, "Final norm")]
    if m.one_stack:
        apart = ("a matrix for the source, one for the target",) * (m.tie != "all")
        count = f"{(1 + len(apart)) * V * m.d_model:,}"
        lines = tuple(line for line in under[0].lines if line != own[m.tie][0])
        under[0] = replace(under[0], lines=(*lines, *apart), parameters=count)
        return (Column([under[0]], [_around(m, _self(m, True)), _around(m, _feed_forward(m))], [*final, output]),)
    encoder = Column([under[0]], [_around(m, _self(m, False)), _around(m, _feed_forward(m))], final)
    cross = Box("Cross-attention", tuple(_heads(m, "cross")), _count_text(lambda: memory_parameters(m)))
    layers = [_around(m, _self(m, True)), _around(m, cross), _around(m, _feed_forward(m))]
    return encoder, Column([under[1]], layers, [*final, output])


def _around(m: Model, box: Box) -> list[Box]:
    """A sub-layer with its residual and norms (5.4 of the paper), from below."""
    add = Box("Add", tuple(filter(None, (_dropout(m),))))
    if m.norm == "post":
        return [box, replace(_norm(m, "Add & norm"), lines=(*_norm(m, "").lines, *add.lines))]
    after = [_norm(m, "Norm")] if m.norm == "sandwich" else []
    return [_norm(m, "Norm"), box, *after, add]


def _norm(m: Model, title: str) -> Box:
    words = NORMS.traits(m.norm_kind).label or m.norm_kind
    return Box(title, (words,), _count_text(lambda: NORMS.count(m.norm_kind, m)))


def _dropout(m: Model) -> str:
    return f"dropout {m.P_drop:g}" if m.P_drop else ""


def _heads(m: Model, place: str) -> list[str]:
    """Sizes of an attention, and how it compares and mixes in `place`."""
    shared = f", {m.kv_heads} of keys and values" if m.kv_heads and m.kv_heads != m.h else ""
    scores = {"scaled": "q·k / √d_k", "unscaled": "q·k", "additive": "u·tanh(q + k)", "cosine": "g cos(q, k)"}[m.scores]
    part = attention_type(m, place)
    mixing = part.label or part.name
    notes = ["norms of q and k"] * m.qk_norm + [f"dropout of weights {m.P_attention:g}"] * (m.P_attention > 0)
    return [f"h {m.h}{shared}, d_k {m.d_k}, d_v {m.d_v}", f"{mixing}({scores}){''.join(f', {x}' for x in notes)}"]


def _self(m: Model, causal: bool) -> Box:
    layer = LAYERS.traits(m.layer)
    name = layer.label or m.layer
    whole, masked = name[0].upper() + name[1:], f"Masked {name}"
    title = masked if causal and layer.heads else f"{whole}, causal" if causal else whole
    lines = _heads(m, "self") if layer.heads else []
    lines += ["sees the whole source"] * (m.stack == "prefix")
    lines += ["one direction" if causal else "two directions"] * layer.recurrent
    lines += [f"neighbourhood r {m.neighbourhood}"] * ("neighbourhood" in layer.reads)
    lines += [f"kernel k {m.kernel}"] * ("kernel" in layer.reads)
    scheme = SCHEMES.traits(m.positions)
    lines += [f"{scheme.label or m.positions} positions"] * (layer.heads and scheme.acts != "embedding")
    lines += ["as many parameters as self-attention"] * (m.layer_width == "parameters")
    return Box(title, tuple(lines), _count_text(lambda: layer_parameters(m, causal)))


def _feed_forward(m: Model) -> Box:
    part = FEED_FORWARDS.traits(m.feed_forward)
    label, count = part.label or m.feed_forward, _count_text(lambda: FEED_FORWARDS.count(m.feed_forward, m))
    if part.width is None:
        return Box("Feed-forward", (label,), count)
    inner = [f"dropout within {m.P_ff:g}"] * (m.P_ff > 0)
    return Box(f"Feed-forward, {label}", (f"{m.d_model} → {part.width(m):,} → {m.d_model}", *inner), count)


def _count_text(count: Callable[[], int]) -> str:
    try:
        return f"{count():,}"
    except UserError:
        return ""


# --- the picture ---


def _column_picture(
    column: Column, other: Column, x: int, bottom: int, N: int
) -> tuple[str, tuple[float, float], list[float]]:
    """The column, the middle of its top, and for each sub-layer the height of the middle of its main box."""
    body, y, before = [], float(bottom), {box for box in other.boxes}
    middle, heights = x + COLUMN / 2, []
    last = y + 14

    def put(box: Box) -> float:
        """Draw a box on top of the others; returns its middle."""
        nonlocal y, last
        y -= box.height
        body.append(_arrow([(middle, last), (middle, y + box.height)]))
        body.append(_box(box, x, y, box not in before))
        last = y
        y -= GAP
        return y + GAP + box.height / 2

    for box in column.under:
        put(box)
    y -= 10
    start = last - 9
    for group in column.sublayers:
        y -= 12
        branch = last - GAP / 2
        places = [put(box) for box in group]
        main = next(i for i, box in enumerate(group) if not box.title.startswith(("Norm", "Add")))
        heights.append(places[main])
        rail = x - 16.0
        body.append(_arrow([(middle, branch - 4), (rail, branch - 4), (rail, places[-1]), (float(x), places[-1])]))
        y -= 6
    frame = tag(
        "rect", x=x - 28.0, y=y + 6, width=COLUMN + 40.0, height=start - y - 2, rx=10, class_="frame", fill="none"
    )
    times = label(x - 26, y + 1, f"{N} ×", "start", "label strong")
    y -= 8
    for box in column.over:
        put(box)
    end = last - (16 if column.over else 30)
    body.append(_arrow([(middle, last), (middle, end)]))
    return frame + times + "".join(body), (middle, end), heights


def _box(box: Box, x: float, y: float, changed: bool) -> str:
    look = "box changed" if changed else "box"
    parts = [tag("rect", x=float(x), y=y, width=float(COLUMN), height=float(box.height), rx=6, class_=look)]
    parts.append(label(x + 10, y + 17, box.title, class_="label strong"))
    parts.append(label(x + COLUMN - 10, y + 17, box.parameters, "end", "tick") if box.parameters else "")
    parts += [label(x + 10, y + 17 + LINE * (i + 1), line) for i, line in enumerate(box.lines)]
    return "".join(parts)


def _memory(top: tuple[float, float], heights: list[float]) -> str:
    """From the encoder's output to the decoder's attention over it."""
    x, y = top
    between = (ENCODER_X + COLUMN + DECODER_X) / 2 - 6
    ends = heights[1]
    return _arrow([(x, y), (between, y), (between, ends), (float(DECODER_X), ends)])


def _arrow(places: list[tuple[float, float]]) -> str:
    (x0, y0), (x1, y1) = places[-2:]
    path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)
    dx, dy = ((1, 0) if x1 > x0 else (-1, 0)) if y0 == y1 else (0, 1 if y1 > y0 else -1)
    back = (x1 - 6 * dx, y1 - 6 * dy)
    head = [(x1, y1), (back[0] - 3.5 * dy, back[1] - 3.5 * dx), (back[0] + 3.5 * dy, back[1] + 3.5 * dx)]
    corners = " ".join(f"{number(x)},{number(y)}" for x, y in head)
    return tag("path", d=path, class_="arrow") + tag("polygon", points=corners, class_="head")


def drawn_alike(one: Experiment, other: Experiment) -> bool:
    """Whether their pictures have the same boxes."""
    return columns(one) == columns(other) and one.model.N == other.model.N


# --- of a study ---


@dataclass(frozen=True)
class Drawn:
    """The architecture of a row."""

    row: str
    called: str
    picture: Markup
    narrow: list[str]


def architectures(study: Ablation) -> tuple[list[Drawn], int]:
    """That of base first, then those that differ from it in a box; rows that had no room."""
    first = next((row for row in study.rows if row.name == study.base_row), study.rows[0])
    base = _true(study, first)
    drawn: list[Drawn] = []
    left_out = 0
    for row in sorted(study.rows, key=lambda row: row is not first):
        ours = _true(study, row)
        if row is not first and drawn_alike(ours, base):
            continue
        if len(drawn) > MOST:
            left_out += 1
            continue
        called = row.label or row.name
        picture = architecture(ours, called, base, f"plan-{len(drawn)}")
        drawn.append(Drawn(row.name, called, picture, narrow_views(ours)))
    return drawn, left_out


def _true(study: Ablation, row: Row) -> Experiment:
    """At its true sizes, with as many pieces as there are."""
    exact = study.exact(row)
    return replace(exact, data=replace(exact.data, vocab_size=study.data_of(row).V))
