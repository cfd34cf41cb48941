"""Which record belongs into which cell."""

import math
from dataclasses import replace

from lightning_tfm.config import Experiment, Miniature, training_hash
from lightning_tfm.report.records import fitting
from lightning_tfm.runs.record import Missing, RunRecord, Texts
from lightning_tfm.study.rows import Fingerprints, Row, all_rows, apply
from lightning_tfm.study.study import Ablation
from tests.helpers.studies import record_of

BASE = Experiment(miniature=Miniature(width=8, depth=2, steps=100))
PRINTS = Fingerprints("train text", "dev set")
STUDY = Ablation(name="t", base=BASE, rows=list(all_rows().values()), seeds=[1], prints=PRINTS, V=300, store="store")


def refusal(record: RunRecord, row: Row, seed: int) -> str | None:
    found = fitting(record, STUDY, row, seed)
    return found.reason if isinstance(found, Missing) else None


def test_a_record_fits_its_own_cell_and_no_other():
    rows = all_rows()
    for row in rows.values():
        own = record_of(apply(BASE, row, 3), PRINTS)
        assert refusal(own, row, 3) is None
        assert "training.seed is 3, the cell asks for 4" in str(refusal(own, row, 4))
        for other in rows.values():
            assert (refusal(own, other, 3) is None) == (other is row)


def test_what_a_cell_refuses():
    row = all_rows()["A-h4"]
    right = apply(BASE, row, 1)
    more = record_of(replace(right, training=replace(right.training, warmup=500)), PRINTS)
    assert refusal(more, row, 1) == "a different experiment: training.warmup is 500, the cell asks for 4000"
    assert "train is other text" in str(refusal(record_of(right, replace(PRINTS, train="other text")), row, 1))
    beam = replace(right, evaluation=replace(BASE.evaluation, beam=1))
    assert "a different evaluation" in str(refusal(record_of(beam, PRINTS), row, 1))
    own = record_of(right, PRINTS)
    assert refusal(replace(own, scores={}), row, 1) == "no dev score"
    assert "does not yield" in str(refusal(replace(more, training_hash=training_hash(own.identity)), row, 1))
    assert refusal(record_of(right, PRINTS, ppl=0.0), row, 1) == "its dev ppl is 0.0, its dev bleu 50.0"
    assert refusal(replace(own, data=Texts(train=PRINTS.train)), row, 1) is None
    edited = str(refusal(replace(own, data=Texts(train="another text")), row, 1))
    assert "trained on another text (another text…) than it is named by (train text…)" in edited
    lost = record_of(right, PRINTS, ppl=math.inf, nll=8120.0)
    assert "diverged: dev PPL is infinite (nll 812 per token)" in str(refusal(lost, row, 1))
    assert "bleu 100.5" in str(refusal(record_of(right, PRINTS, bleu=100.5), row, 1))


def test_big_declares_its_steps():
    big = all_rows()["big"]
    short = apply(BASE, replace(big, change={k: v for k, v in big.change.items() if k != "training.steps"}), 1)
    assert "training.steps is 1000, the cell asks for 3000" in str(refusal(record_of(short, PRINTS), big, 1))
