"""Translations of a few dev sentences as a run learns: taken at every validation, and nothing depends on them."""

import json
from pathlib import Path

import pytest
import torch

from lightning_tfm.config import Hardware
from lightning_tfm.dashboard.texts import over_time
from lightning_tfm.data.prepare import prepare
from lightning_tfm.runs.folder import RunFolder, StaleAttempt
from lightning_tfm.runs.samples import COUNT, Samples
from tests.helpers.tiny import attempt, experiment, in_child, metrics, weights, write_corpus

HARDWARE = Hardware(validate_every=5, log_every=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]


def untouched(e, root: Path) -> tuple[int, Path]:
    Samples.take = lambda self, module, step: None
    return attempt(e, root, HARDWARE)


def test_sentences_and_their_translations_at_every_validation_and_the_same_weights_without(corpus, tmp_path):
    e = experiment(corpus, training__steps=12)
    code, run = in_child(attempt, e, tmp_path / "a", HARDWARE)
    assert code == 0
    head, *taken = lines(run)
    val = (corpus / "val.en").read_text().splitlines()
    assert head["sources"] == [val[i] for i in head["lines"]] and len(head["lines"]) == COUNT
    assert [line["step"] for line in taken] == [5, 10, 12]
    assert all(len(line["translations"]) == COUNT for line in taken)
    assert [len(sentence.translations) for sentence in over_time(run)] == [3] * COUNT
    norms = [line["grad_norm"] for line in metrics(run) if "loss" in line]
    assert len(norms) == 3 and all(0 < norm < 1e3 for norm in norms)
    code, other = in_child(untouched, e, tmp_path / "b")
    assert code == 0 and not (other / "samples.jsonl").exists()
    assert metrics(run) == metrics(other)
    assert all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(other).values(), strict=True))


def test_an_attempt_drops_what_came_after_its_checkpoint_and_what_is_damaged(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Samples, "_translate", lambda self, module: ["x"] * COUNT)
    prepared = prepare(experiment(corpus).data, tmp_path)
    folder = RunFolder(tmp_path, "ab" * 32)

    def begun() -> Samples:
        return Samples(folder.claim(), prepared.split("val"), prepared.tokenizer, compiled=False)

    first = begun()
    for step in (5, 10, 15):
        first.take(None, step)
    with (folder.path / "samples.jsonl").open("a") as file:
        file.write('{"step": 20, "transl')  # killed while writing
    record = json.loads((folder.attempts / "0001.json").read_bytes())
    (folder.attempts / "0001.json").write_text(json.dumps(record | {"ended": 1.0}))
    second = begun()
    second.take(None, 10)
    second.take(None, 15)
    assert [line["step"] for line in lines(folder.path)] == [0, 5, 10, 15]
    with pytest.raises(StaleAttempt):
        first.take(None, 20)
    (folder.path / "samples.jsonl").write_text("[\n{}\n")
    record = json.loads((folder.attempts / "0002.json").read_bytes())
    (folder.attempts / "0002.json").write_text(json.dumps(record | {"ended": 1.0}))
    begun().take(None, 5)
    assert [line["step"] for line in lines(folder.path)] == [0, 5]
