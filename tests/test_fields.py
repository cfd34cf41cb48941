"""Every field of an experiment, flipped, changes something: fields.txt says what, and is complete.

An option that never arrives would pass every other test.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

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


def read(line: str) -> tuple[str, Any, Callable[[Experiment, Path], Any], dict[str, Any]]:
    """Field, another value of it, the view in which it shows, and what else must be set on both sides."""
    key, value, view, both = line.split(" |")
    return key, yaml.safe_load(value), globals()[view.strip()], yaml.safe_load(f"{{{both}}}")


TEXT = Path(__file__).with_name("fields.txt").read_text(encoding="utf-8")
CASES = [read(line) for line in TEXT.splitlines() if not line.startswith("#")]
CASES += [("model.positions", name, built, {}) for name in SCHEMES if name not in ("sinusoidal", "none")]


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
        first = all(view is not other for other, _ in seen)
        seen[view, before] = view(before, root)
        if first and view is not table_score:  # that run is finished and would not be trained again
            assert view(before, root) == seen[view, before], "the view itself is not steady"
    assert view(after, root) != seen[view, before]


def test_the_table_is_complete():
    fields = {
        f"{section.name}.{f.name}"
        for section in dataclasses.fields(Experiment)
        for f in dataclasses.fields(section.type)
    }
    assert {key for key, *_ in CASES} == fields
