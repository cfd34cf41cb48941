"""Values of an experiment that are outside their range or contradict each other."""

import math
from dataclasses import fields
from typing import Any

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, LAYERS, SCHEMES

LARGEST = 2**63 - 1


def check_ranges(values: Any, section: str) -> None:
    """Raise UserError where a value of a section is infinite, huge, or outside the range that its field states."""
    for f in fields(values):
        value = getattr(values, f.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{section}.{f.name}={value}: expected a finite number")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(
                f"{section}.{f.name}={str(value)[:80]}: larger than any number used in computations here ({LARGEST:,})"
            )
        text, holds = f.metadata.get("range", ("", None))
        if holds is not None and not holds(value):
            raise UserError(f"{section}.{f.name}={value}: {text}")


def check(experiment: Experiment) -> None:
    """Raise UserError where values contradict each other or are outside their range."""
    m, d, t, e = experiment.model, experiment.data, experiment.training, experiment.evaluation
    for section in fields(experiment):
        check_ranges(getattr(experiment, section.name), section.name)
    for name in ("P_drop", "P_attention", "P_ff") if t.masks == "sentence" else ():
        if round(65536 * (share := getattr(m, name))) == 65536:
            raise UserError(
                f"model.{name}={share}: masks keyed by sentence drop a multiple of 1/65536, here all of them: at most "
                "0.99999"
            )
    if t.schedule == "wsd" and t.warmup + round(t.cooldown * t.steps) > t.steps:
        raise UserError(
            f"training.schedule=wsd: a warm-up of {t.warmup} steps and a fall of {round(t.cooldown * t.steps)} do not "
            f"fit into training.steps={t.steps}: set training.warmup or training.cooldown lower"
        )
    if m.kv_heads < 0 or (m.kv_heads and m.h % m.kv_heads):
        raise UserError(f"model.kv_heads={m.kv_heads}: must divide model.h={m.h}, or be 0 for as many")
    scheme, layer = SCHEMES.traits(m.positions), LAYERS.traits(m.layer)
    if m.positions in SCHEMES and m.layer in LAYERS and scheme.acts not in ("embedding", *layer.takes):
        raise UserError(
            f"model.positions={m.positions} needs full self-attention, which model.layer={m.layer} replaces: "
            "take sinusoidal, learned or none"
        )
    if m.P_attention and m.layer == "restricted":
        raise UserError("model.P_attention drops weights of full attention: model.layer=restricted needs it at 0")
    if m.P_ff and m.feed_forward not in FEED_FORWARDS:
        raise UserError(f"model.P_ff acts in feed-forwards that ship: {m.feed_forward} has its own dropout, or none")
    if m.scores == "cosine" and m.qk_norm:
        raise UserError("model.scores=cosine norms queries and keys already: leave model.qk_norm at false")
    if m.attention != "softmax":
        _check_attention(experiment)
    elif m.attention_where != "both":
        raise UserError(f"model.attention_where={m.attention_where} says where model.attention acts: name one")
    if m.layer_width == "parameters" and "layer_width" not in layer.reads:
        takers = ", ".join(name for name, part in LAYERS.items() if "layer_width" in part.reads)
        raise UserError(f"model.layer_width=parameters is for {takers}, not for model.layer={m.layer}")
    scheme.check(m)
    if m.one_stack:
        _check_one_stack(experiment)
    if e.weights == "average" and t.average_last < 1:
        raise UserError("evaluation.weights=average needs training.average_last of at least 1")
    if t.average_last and (t.average_last - 1) * t.average_every >= t.steps:
        raise UserError(
            f"training.average_last={t.average_last} snapshots, training.average_every={t.average_every} steps apart, "
            f"do not fit into training.steps={t.steps}"
        )
    if d.vocabulary and d.tokenizer != "pieces":
        raise UserError(
            f"data.vocabulary={d.vocabulary} is for data.tokenizer=pieces; a byte-pair encoding makes its own"
        )
    if d.long and d.long in d.train.split("+"):
        raise UserError(f"data.long={d.long} is trained on (data.train={d.train}): name a split that is not")
    if d.long_from and not d.long:
        raise UserError(f"data.long_from={d.long_from} is for data.long, the split that is scored by length: name one")
    if not d.translated:
        _check_no_source(experiment)
    if d.corpus == "files" and not d.folder:
        raise UserError("data.corpus=files needs data.folder, the folder of the parallel files")
    if d.corpus == "treebank" and not d.folder:
        raise UserError("data.corpus=treebank needs data.folder, the folder of the trees")


def _check_no_source(experiment: Experiment) -> None:
    """Raise UserError for what only a pair of texts has a place for."""
    m, d = experiment.model, experiment.data
    none = f"data.corpus={d.corpus} has no source"
    if d.corpus == "lines" and not d.folder:
        raise UserError("data.corpus=lines needs data.folder, the folder of the text files, train.txt and so on")
    if m.stack != "causal":
        raise UserError(f"{none}, so there is nothing to encode: set model.stack=causal (it is {m.stack})")
    if m.tie != "all":
        raise UserError(f"model.tie={m.tie} gives the source's tokens their own matrix: {none}, leave it at all")
    if d.max_ratio:
        raise UserError(f"data.max_ratio compares the two sides of a pair: {none}, remove it")
    if experiment.evaluation.metrics:
        raise UserError(f"evaluation.metrics={experiment.evaluation.metrics} scores translations: {none}, remove it")


def _check_one_stack(experiment: Experiment) -> None:
    """Raise UserError for what one stack has no place for."""
    m = experiment.model
    if m.target_spaces:
        raise UserError(
            f"model.target_spaces={m.target_spaces} adds to the encoder's input: model.stack={m.stack} has no encoder"
        )
    if m.attention_where == "cross":
        raise UserError(f"model.attention_where=cross: model.stack={m.stack} has no cross-attention, remove it")
    if m.stack == "prefix" and m.layer != "attention":
        raise UserError(
            f"model.stack=prefix needs full self-attention, which model.layer={m.layer} replaces: it reads a text in "
            "one direction or in both, not the source in both and the target in one; model.stack=causal takes it"
        )


def _check_attention(experiment: Experiment) -> None:
    """Raise UserError where `model.attention` does not go with other parts of the model."""
    m = experiment.model
    ATTENTIONS.traits(m.attention).check(m)
    if m.attention_where != "cross" and m.layer != "attention":
        raise UserError(
            f"model.attention={m.attention} acts in full self-attention, which model.layer={m.layer} replaces: "
            "model.attention_where=cross leaves it to cross-attention"
        )
    if m.scores == "additive":
        raise UserError(
            f"model.scores=additive compares by itself, and so does model.attention={m.attention}: leave one"
        )
    inside = m.attention_where != "cross" and SCHEMES.traits(m.positions).acts in ("rotation", "scores")
    if inside and not ATTENTIONS.traits(m.attention).compares:
        raise UserError(
            f"model.positions={m.positions} acts on queries and keys, which model.attention={m.attention} does not "
            "compare: take sinusoidal, learned or none"
        )
    if m.attention_where != "cross" and m.positions == "shaw_values":
        raise UserError(
            f"model.positions=shaw_values acts on the weights of softmax, which model.attention={m.attention} "
            "replaces: take shaw"
        )
