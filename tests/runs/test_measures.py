"""Scores that evaluation.metrics names: made with the run, of its translations, and refused before it is trained."""

import json

from lightning_tfm.config import Data
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.inference import head_ablation
from lightning_tfm.inference.load import Trained
from lightning_tfm.metrics import in_print
from lightning_tfm.parseval import F1
from lightning_tfm.report.analyses.head_ablation import head_blocks
from lightning_tfm.runs.folders import find_run
from lightning_tfm.runs.record import read
from tests.helpers.tiny import attempt, experiment, in_child

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
    record = read(path / "result.json")
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
