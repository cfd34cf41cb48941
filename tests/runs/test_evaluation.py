"""Scores of a run: metrics that evaluation.metrics names, refused before it is trained; by length, of its lines."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lightning_tfm.config import Data, to_dict
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.inference import head_ablation
from lightning_tfm.inference.load import Trained
from lightning_tfm.inference.rescore import score_long
from lightning_tfm.metrics import in_print
from lightning_tfm.parseval import F1
from lightning_tfm.report.analyses.head_ablation import head_blocks
from lightning_tfm.report.records import read_columns
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.folders import find_run
from lightning_tfm.runs.length_buckets import Scored, by_length
from lightning_tfm.runs.record import ByLength, RunRecord, Score, read_record, read_score, to_plain
from lightning_tfm.training.evaluate import Line
from tests.helpers.tiny import attempt, experiment, in_child, train, write_corpus


def test_every_line_counts_once_on_each_side():
    source, target = np.array([4, 10, 11, 24]), np.array([6, 12, 5, 20])
    lines = [Line(float(t), int(t), [7] * pieces) for t, pieces in zip(target, (4, 11, 1, 3), strict=True)]
    text = ["a b c d", "a b c d e", "b c d e", "f g h i"]
    found = by_length(Scored(lines, ["x", *text[1:]], text, source, target), 10, "13a")
    sides = {side: [c for c in found.classes if c.side == side] for side in ("source", "target", "longer", "both")}
    assert {side: [c.upto for c in some] for side, some in sides.items()} == {
        "source": [0.5, 1.0, 1.5, 2.5],
        "target": [0.5, 1.0, 1.5, 2.0],
        "longer": [1.0, 1.5, 2.5],
        "both": [1.0, 5.0],
    }
    for some in sides.values():
        assert sum(c.sentences for c in some) == 4 and sum(c.tokens for c in some) == 43 == sum(c.nll for c in some)
    within, beyond = sides["both"]
    assert (within.sentences, within.pieces, within.early, within.bleu) == (1, 5, 0, 0.0)
    assert (beyond.sentences, beyond.pieces, beyond.early) == (3, 12 + 2 + 4, 2) and beyond.bleu == pytest.approx(100)


def test_a_run_scores_by_length_and_old_records_are_read(tmp_path):
    e = experiment(
        write_corpus(tmp_path / "text"),
        **{"training__steps": 2, "training__warmup": 1, "evaluation__beam": 1},
        **{"data__max_len": 14, "data__test": ""},
    )
    plain = in_child(train, e, tmp_path / "plain")
    folder = in_child(train, experiment_with(e, "val"), tmp_path / "long")
    before, after = (read_record(path / "result.json") for path in (plain, folder))
    assert isinstance(before, RunRecord) and isinstance(after, RunRecord)
    assert plain.name == folder.name and after.scores["dev"].nll == before.scores["dev"].nll
    assert before.scores.keys() == {"dev"} and "by_length" not in to_plain(before)["scores"]["dev"]
    score = after.scores["long"]
    later = RunFolder(plain.parent.parent, before.training_hash)
    assert [in_child(score_long, later, experiment_with(e, "val")) for _ in range(2)] == [True, False]
    made = read_score(later.scores(score.evaluation_hash) / "val.json")
    assert (
        isinstance(made, Score) and made.by_length == score.by_length and made.evaluation_hash == score.evaluation_hash
    )
    assert isinstance(score.by_length, ByLength) and score.by_length.limit == 14
    assert score.evaluation_hash != after.scores["dev"].evaluation_hash
    scores = folder / "scores" / score.evaluation_hash[:16]
    assert read_score(scores / "val.json") == replace(score, run=folder.name)
    lines = read_columns(scores / "val.sentences.tsv", ("nll", "tokens", "source", "pieces"))
    assert lines[:, 0].sum() == pytest.approx(score.nll) and len(lines) == score.sentences
    pieces = sum(c.pieces for c in score.by_length.classes if c.side == "longer")
    assert lines[:, 3].sum() == pieces
    assert json.loads((folder / "result.json").read_bytes())["experiment"] == to_dict(experiment_with(e, "val"))


def experiment_with(e, split):
    return replace(e, data=replace(e.data, long=split))


TREES = {"data__corpus": "trees", "data__pairs": 90, "data__vocab_size": 150, "data__test": "", "training__steps": 2}


def test_a_run_is_scored_by_what_its_experiment_names(tmp_path):
    e = experiment(tmp_path, **TREES, training__warmup=1, evaluation__beam=1, evaluation__metrics="f1+exact+ill_formed")
    code, path = in_child(attempt, e, tmp_path / "out")
    assert code == 0
    plain = json.loads((path / "result.json").read_bytes())["scores"]["dev"]
    (made,) = path.glob("scores/*/val.hyp.txt")
    references = [tree for _, tree in make_corpus(Data(corpus="trees", pairs=90)).lines("val")]
    score = F1(references, "").corpus(made.read_bytes().decode().split("\n")[:-1])
    assert (plain["f1"], plain["f1_signature"]) == (score.value, score.signature) and plain["ill_formed"] > 90
    record = read_record(path / "result.json")
    assert record.scores["dev"].measures["f1"].value == score.value
    said = in_print(record.scores["dev"])
    assert f"F1 {score.value:.2f}" in said and "ill-formed 1" in said and "chrF" not in said

    trained = Trained.open(find_run(tmp_path / "out", path.name), e)
    text = head_ablation.Some(trained.prepared.split("val"), 8)
    for record in (head_ablation.beams(trained, text, e.evaluation, [1], print)["beams"][0],
                   head_ablation.heads(trained, text, e.evaluation, print)):  # fmt: skip
        assert 0 <= record["f1"] <= 100 and "bleu" not in record
    (table, _) = head_blocks(record)
    assert [column.head for column in table.columns][-1] == "F1" and "F1 " in table.title


def test_a_text_without_trees_is_refused_before_anything_is_trained(tmp_path):
    e = experiment(tmp_path, **TREES | {"data__corpus": "builtin"}, training__warmup=1, evaluation__metrics="f1")
    code, path = in_child(attempt, e, tmp_path / "out")
    assert code == 2 and not (path / "result.json").exists() and not list(path.glob("checkpoint*"))
    assert "line 1 of the references is not one" in json.loads((path / "outcome.json").read_bytes())["reason"]
