"""Every field of an experiment, flipped, changes something: the table says what, and is complete.

An option that never arrives would pass every other test.
"""

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightning_tfm.bleu import bleu
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.data.module import StepLoader, TranslationData, evaluation_batches
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.length_buckets import LongText
from lightning_tfm.errors import UserError
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.registry import SCHEMES
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training.evaluate import evaluate_lines
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule
from tests.helpers.tiny import WORDS, experiment, in_child, train, write_corpus

V = 44


# --- where a change can show; each view returns plain values that compare by == ---


def built(e: Experiment, root) -> Any:
    """Parameters and outputs of the untrained model."""
    model = make_model(e.model, V, e.training.seed).eval()
    source, target = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]]), torch.tensor([[2, 5, 6, 7], [2, 8, 9, 10]])
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return shapes, model(source, target).detach().numpy().tobytes()


def stored(e: Experiment, root) -> Any:
    """Pieces and text of the prepared splits, and the tokenizer."""
    try:
        prepared = prepare(e.data, root)
    except UserError as error:
        return str(error)
    splits = {}
    for role, name in (("train", e.data.train), ("dev", e.data.dev), ("test", e.data.test)):
        if name:
            split = prepared.split(name)
            splits[role] = [(split.source(i).tolist(), split.target(i).tolist()) for i in range(len(split))]
            splits[role].append(prepared.fingerprint(name))
    return splits, prepared.tokenizer.fingerprint


def by_length(e: Experiment, root) -> Any:
    """Lines that are scored by length."""
    prepared = prepare(e.data, root)
    return [LongText(prepared, replace(e.data, max_len=12)).fingerprint("") if e.data.long else None]


def planned(e: Experiment, root) -> Any:
    """Sentences of the first steps."""
    plan = TranslationData(e, prepare(e.data, root)).plan()
    return [plan.global_batch(step).tolist() for step in range(2 * plan.steps_per_epoch)]


def trained(e: Experiment, root) -> Any:
    """Losses and weights after the whole training."""
    data = TranslationData(e, prepare(e.data, root))
    module = TransformerModule(e, data.prepared.tokenizer.V)
    trainer = make_trainer(e, Hardware(accelerator="cpu"), [])
    loader = StepLoader(data.plan(), data.prepared.split(e.data.train), 0, 0, 1, 0)
    trainer.fit(module, train_dataloaders=loader)
    return module.take_sums().tolist(), [p.detach().double().numpy().tobytes() for p in module.parameters()]


def scored(e: Experiment, root) -> Any:
    """Perplexity, translations and BLEU of the dev text by the untrained model."""
    prepared = prepare(e.data, root)
    split = prepared.split(e.data.dev)
    module = TransformerModule(e, prepared.tokenizer.V)
    lines = evaluate_lines(module, evaluation_batches(split), len(split), e.evaluation)
    texts = [prepared.tokenizer.decode(line.pieces or []) for line in lines]
    return lines, bleu(texts, split.target_text(), e.evaluation.bleu_tokenize)


def snapshots(e: Experiment, root) -> Any:
    """Steps whose weights are kept for averaging."""
    when = EventSchedule.of(Hardware(), e.training)
    return when.snapshot_steps()


def table_score(e: Experiment, root) -> Any:
    """The dev score in the record of a whole run."""
    folder = root / e.evaluation.weights  # the same weights: another evaluation would find the run finished
    return json.loads((in_child(train, e, folder) / "result.json").read_bytes())["scores"]["dev"]["nll"]


def measures(e: Experiment, root) -> Any:
    """The further dev scores in the record of a whole run."""
    made = json.loads((in_child(train, e, root / f"m{e.evaluation.metrics}") / "result.json").read_bytes())
    return {key: value for key, value in made["scores"]["dev"].items() if key.startswith(("exact", "chrf"))}


def at_true_sizes(e: Experiment, root) -> Any:
    exact = e.scaled()
    return exact.model, exact.training.steps


BUILTIN = {"data.corpus": "builtin", "data.pairs": 200, "data.vocab_size": 400}
UNCLEAN = {"data.folder": "UNCLEAN", "data.vocab_size": 56}
AVERAGED = {"training.average_last": 2, "training.average_every": 5}
# field -> (another value, where it shows, what else must be set on both sides for it to matter)
TABLE = {
    "model.N": (1, built, {}),
    "model.d_model": (18, built, {}),
    "model.d_ff": (24, built, {}),
    "model.h": (3, built, {}),
    "model.d_k": (4, built, {}),
    "model.d_v": (6, built, {}),
    "model.P_drop": (0.2, trained, {}),
    "model.positions": ("none", built, {}),
    "model.max_positions": (61, built, {"model.positions": "learned"}),
    "model.norm": ("pre", built, {}),
    "model.norm_eps": (1e-3, built, {}),
    "model.attention_bias": (True, built, {}),
    "model.sinusoid_layout": ("concatenated", built, {}),
    "model.init": ("unit_scaling", built, {}),
    "model.target_spaces": (3, built, {}),
    "model.feed_forward": ("swiglu", built, {}),
    "model.norm_kind": ("rms", built, {}),
    "model.bias": (False, built, {}),
    "model.kv_heads": (1, built, {}),
    "model.qk_norm": (True, built, {}),
    "model.tie": ("none", built, {}),
    "model.layer": ("lstm", built, {}),
    "model.kernel": (4, built, {"model.layer": "convolution"}),
    "model.neighbourhood": (2, built, {"model.layer": "restricted"}),
    "model.scores": ("unscaled", built, {}),
    "model.P_attention": (0.2, trained, {}),
    "model.P_ff": (0.2, trained, {}),
    "model.clip": (2, built, {"model.positions": "shaw"}),
    "model.attention": ("gated", built, {}),
    "model.attention_where": ("cross", built, {"model.attention": "gated"}),
    "model.stack": ("prefix", built, {}),
    "model.layer_width": ("parameters", built, {"model.layer": "separable"}),
    "data.corpus": ("builtin", stored, {"data.pairs": 200, "data.vocab_size": 70}),
    "data.folder": ("OTHER", stored, {}),
    "data.source": ("de", stored, {}),
    "data.target": ("en", stored, {}),
    "data.train": ("val", stored, {"data.dev": "test"}),
    "data.dev": ("test", stored, {"data.test": ""}),
    "data.test": ("", stored, {}),
    "data.pairs": (300, stored, BUILTIN),
    "data.corpus_seed": (1, stored, BUILTIN),
    "data.tokenizer": ("pieces", stored, {"data.vocabulary": "pieces.txt"}),
    "data.vocabulary": ("fewer.txt", stored, {"data.tokenizer": "pieces"}),
    "data.vocab_size": (46, stored, {}),
    "data.normalization": ("nmt_nfkc_cf", stored, {}),
    "data.byte_fallback": (True, stored, BUILTIN),
    "data.max_len": (30, planned, {}),
    "data.bad_lines": ("drop", stored, {"data.folder": "BROKEN"}),
    "data.max_words": (5, stored, {}),
    "data.max_ratio": (1.5, stored, UNCLEAN),
    "data.check_encoding": (True, stored, UNCLEAN),
    "data.share": (0.5, stored, {}),
    "data.drop_duplicates": (True, stored, UNCLEAN),
    "data.long": ("val", by_length, {}),
    "data.long_from": (13, by_length, {"data.long": "val"}),
    "training.tokens": (200, planned, {}),
    "training.steps": (7, trained, {}),
    "training.warmup": (5, trained, {}),
    "training.lr_factor": (0.5, trained, {}),
    "training.schedule": ("linear", trained, {}),
    "training.beta1": (0.8, trained, {}),
    "training.beta2": (0.9, trained, {}),
    "training.adam_eps": (1e-3, trained, {}),
    "training.clip_norm": (0.1, trained, {}),
    "training.eps_ls": (0.2, trained, {}),
    "training.smoothing": ("others", trained, {}),
    "training.precision": ("bfloat16", trained, {}),
    "training.masks": ("device", trained, {}),
    "training.average_last": (3, snapshots, AVERAGED),
    "training.average_every": (3, snapshots, AVERAGED),
    "training.seed": (2, built, {}),
    "training.optimizer": ("adamw", trained, {"training.weight_decay": 0.1}),
    "training.weight_decay": (0.1, trained, {}),
    "training.cooldown": (0.5, trained, {"training.schedule": "wsd", "training.warmup": 3}),
    "evaluation.beam": (1, scored, {}),
    "evaluation.alpha": (0.0, scored, {}),
    "evaluation.extra_len": (2, scored, {}),
    "evaluation.weights": ("average", table_score, AVERAGED),
    "evaluation.bleu_tokenize": ("char", scored, {}),
    "evaluation.metrics": ("exact+chrf", measures, {}),
    "miniature.width": (2, at_true_sizes, {"model.d_ff": 24, "model.d_v": 6}),
    "miniature.depth": (2, at_true_sizes, {}),
    "miniature.steps": (3, at_true_sizes, {}),
}
ALSO = {
    "model.positions": [(p, built) for p in SCHEMES if p not in ("sinusoidal", "none")],
    "model.norm": [("sandwich", built)],
    "model.stack": [("causal", built)],
    "model.tie": [("decoder", built)],
    "model.scores": [("additive", built), ("cosine", built)],
    "model.attention": [(name, built) for name in ("talking", "differential")],
    "model.layer": [(name, built) for name in ("restricted", "gru", "convolution", "separable", "dilated")],
    "training.optimizer": [("muon", trained)],
    "training.schedule": [("cosine", trained), ("wsd", trained)],
    "model.feed_forward": [(name, built) for name in ("gelu", "relu2", "geglu")],
    "training.precision": [("float64", trained)],
    "training.seed": [(2, planned), (2, trained)],
}
CASES = [(key, *case) for key, case in TABLE.items()]
CASES += [(key, value, view, TABLE[key][2]) for key, more in ALSO.items() for value, view in more]


@pytest.fixture(scope="module")
def seen():
    """Views by experiment: most rows share the unflipped one."""
    return {}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("fields")
    write_corpus(root / "text")
    for name, words in (("pieces.txt", WORDS), ("fewer.txt", WORDS[2:])):
        (root / "text" / name).write_text("".join(f"{word}\n" for word in words))
    write_corpus(root / "OTHER", pairs=50)
    write_corpus(root / "BROKEN")
    lines = (root / "BROKEN" / "train.de").read_text().split("\n")
    (root / "BROKEN" / "train.de").write_text("\n".join(["", *lines[1:]]))
    write_corpus(root / "UNCLEAN")
    unclean = {"en": "ka lo mi nu pe ri so ta\n\ufffd ka\nка ло\nka\nka\n", "de": "ZU\nKA\nKA LO\nKA\nKA\n"}
    for language, more in unclean.items():
        with (root / "UNCLEAN" / f"train.{language}").open("a", encoding="utf-8") as file:
            file.write(more)
    return root


@pytest.mark.parametrize(("key", "value", "view", "both"), CASES, ids=[f"{key}={value}" for key, value, *_ in CASES])
def test_it_shows(key, value, view, both, root, seen):
    def make(changes):
        named = {k: str(root / v) if k == "data.folder" else v for k, v in changes.items()}
        return experiment(root / "text", **{k.replace(".", "__"): v for k, v in named.items()})

    before, after = make(both), make(both | {key: value})
    assert before != after
    if (view, before) not in seen:
        seen[view, before] = view(before, root)
        if view is not table_score:  # that run is finished and would not be trained again
            assert view(before, root) == seen[view, before], "the view itself is not steady"
    assert view(after, root) != seen[view, before]


def test_the_table_is_complete():
    fields = {
        f"{section.name}.{f.name}"
        for section in dataclasses.fields(Experiment)
        for f in dataclasses.fields(section.type)
    }
    assert set(TABLE) == fields
