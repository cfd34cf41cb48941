"""How long a study trains is said beside the paper, from its records and its text."""

import json
import math
from dataclasses import replace

import pytest

from lightning_tfm.report.analyses.training_setup import PAPER, Regime, notes
from lightning_tfm.report.build import make
from lightning_tfm.study.ratios import EPOCHS, UNIQUE, WARMUP
from lightning_tfm.study.rows import Paper
from tests.helpers.studies import BASE, summary, summary_row

OF_THE_PAPER = summary([replace(summary_row("C-N2"), paper=Paper(6.11, 23.7, 36))])


def test_it_is_read_off_records_and_text(generator, tmp_path):
    made = generator(["base", "A-h1"], [1, 2])
    made.write_all()
    for row in made.study.rows[:1]:
        for seed, pieces in ((1, 4_000_000), (2, 4_400_000)):
            path = made.folder(row, seed).result
            plain = json.loads(path.read_bytes()) | {"target_tokens": pieces}
            path.write_text(json.dumps(plain))
    report = make("made", tmp_path)
    base, t = report.summary.base, BASE.scaled().training
    pieces = int((made.prepared.train.target_lengths + 1).sum())
    found = report.summary.analyses["regime"]
    assert found.trained == pytest.approx(4_200_000 / base.parameters)
    assert found.unique == pytest.approx(pieces / base.parameters), "none of them is above data.max_len"
    assert (found.warmup, found.last_rate) == (t.warmup / t.steps, 1.0), "its rate still rises at the end"
    for kind in ("markdown", "html"):
        assert "training target tokens per parameter of base (the paper 40)" in report.render(kind)
    assert json.loads(report.render("json"))["regime"]["trained"] == found.trained
    (tmp_path / "data" / made.study.store / "card.json").unlink()
    assert make("made", tmp_path).summary.analyses["regime"] == replace(found, unique=None)


def test_the_sentence():
    said = "training: 2 unique (2) and 40 training target tokens per parameter of base (the paper 40), 20 epochs (20); "
    said += "warm-up 4 % of the steps (4 %), rate at the end 0.20 of its peak (0.20)"
    assert notes(PAPER, OF_THE_PAPER) == [said]
    short = (
        "training: 1.5 training target tokens per parameter of base (the paper 40); warm-up 15 % of the steps (4 %), "
    )
    assert notes(Regime(1.5, None, 0.15, 0.39), OF_THE_PAPER) == [short + "rate at the end 0.39 of its peak (0.20)"]
    own = "training: 1.5 training target tokens per parameter of base; warm-up 15 % of the steps, "
    assert notes(Regime(1.5, None, 0.15, 0.39), summary([summary_row("mine")])) == [
        own + "rate at the end 0.39 of its peak"
    ]


def test_the_paper_is_what_ratios_hold():
    assert (PAPER.unique, PAPER.trained, PAPER.warmup) == (UNIQUE, UNIQUE * EPOCHS, WARMUP)
    assert PAPER.last_rate == math.sqrt(WARMUP)
