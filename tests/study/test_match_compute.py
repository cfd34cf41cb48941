"""`solve`: the size that makes a row cost as much as base."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, Miniature, override
from lightning_tfm.errors import UserError
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.size import count_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.study.match_compute import FIELDS, PAIRED, measure, solved_lines
from lightning_tfm.study.rows import Fingerprints, Paper, Row, apply, load_rows
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study import Ablation, value_of
from lightning_tfm.study.study_file import load_as, save
from tests.model.test_flops import counted_by_torch

ROOT = Path(__file__).parents[2]
MINIATURE = load_experiment(ROOT / "experiments/miniature.yaml")
FILES = ("experiments/layers-equal.yaml", "experiments/modern-equal.yaml")
SHIPPED = [row for file in FILES for row in load_rows(ROOT / file)]


def row(change, key, **asked):
    return Row("r", "g", change | {key: asked}, Paper(None, None, None), "x.yaml:1")


def off(base, solved, key, asked, units):
    """By how much it misses base, with its size moved by so many units."""
    unit = getattr(base.miniature, FIELDS[key]) * PAIRED.get(key, 1)
    moved = solved.change | {key: solved.change[key] + units * unit}
    return abs(measure(override(base, moved, "x"), asked, "x") - measure(base, asked, "x"))


@pytest.mark.parametrize("declared", SHIPPED, ids=lambda row: row.name)
def test_no_neighbouring_size_is_nearer(declared):
    solved = declared.on(MINIATURE)
    ((key, asked),) = solved.ties.items()
    assert declared.name.endswith(asked["solve"]), "its name says it"
    best = off(MINIATURE, solved, key, asked, 0)
    assert best <= off(MINIATURE, solved, key, asked, 1) and best <= off(MINIATURE, solved, key, asked, -1)
    assert best < 0.005 * measure(MINIATURE, asked, "x")


@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.parametrize("base", [Experiment(), MINIATURE], ids=["full", "miniature"])
def test_every_field_is_solved_for(base, key):
    change = {"model.kv_heads": 1} if key != "model.N" else {"model.d_ff": 1024, "model.kv_heads": 1}
    solved = row(change, key, solve="flops").on(base)
    best = off(base, solved, key, {"solve": "flops"}, 0)
    assert best <= off(base, solved, key, {"solve": "flops"}, 1)
    assert best <= off(base, solved, key, {"solve": "flops"}, -1)
    assert solved.change[key] > value_of(base, key), "the row is cheaper, so it may be larger"


UNFILLED = [row for row in SHIPPED if row.change.get("model.layer") != "restricted"]
"""a CPU fills fewer than 16 neighbours up, which no formula counts (tests/model/test_flops.py has 18)"""


@pytest.mark.parametrize("declared", UNFILLED, ids=lambda row: row.name)
def test_torch_counts_as_many(declared):
    """Of the solved model, without a padded position."""
    exact = replace(apply(MINIATURE, declared).scaled(), training=MINIATURE.training)
    model = replace(exact.model, P_drop=0.0)
    pairs = AttentionPairs.of(model, torch.full((3,), 17).numpy(), torch.full((3,), 23).numpy())
    built = Transformer(model, 31).double()
    assert training_flops(model, 31, 3 * 17, 3 * 23, pairs) == counted_by_torch(built, 17, 23)
    assert count_parameters(model, 31)["total"] == sum(p.numel() for p in built.parameters())


def test_the_study_keeps_the_number_and_why(tmp_path):
    solved = SHIPPED[0].on(MINIATURE)
    assert isinstance(solved.change["model.d_ff"], int) and solved.change["model.d_ff"] % 8 == 0
    assert solved.ties == {"model.d_ff": {"solve": "flops", "pieces": 12}}
    study = Ablation(
        name="s", base=MINIATURE, rows=[SHIPPED[0]], seeds=[1], prints=Fingerprints("t", "d"), V=800, store="x"
    )
    save(study, tmp_path)
    assert load_as(Ablation, tmp_path, "s").rows == [solved]
    (line,) = solved_lines(MINIATURE, [SHIPPED[0]])
    assert line == "L-lstm-flops: model.d_ff 140 as trained, for base's flops at 12 tokens per sentence: 0.00 % left"
    assert solved_lines(MINIATURE, [solved]) == [line], "however it was laid on base"


def test_what_cannot_be_solved():
    def refused(change, key, words, base=MINIATURE, **asked):
        with pytest.raises(UserError, match=words):
            row(change, key, **asked).on(base)

    refused({"model.tie": "none"}, "model.d_ff", "even with model.d_ff=1 it has more", Experiment(), solve="parameters")
    refused({}, "training.steps", "does not change its parameters", solve="parameters")
    refused({"model.d_k": {"tie": "model.d_ff / 32"}}, "model.d_ff", "model.d_k follows model.d_ff", solve="flops")
    refused({"model.feed_forward": "tests.nowhere.Own"}, "model.d_ff", "only classes that ship", solve="flops")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("solve: {field: model.h, equal: flops}", "solve: field=model.h"),
        ("solve: {field: model.d_ff, equal: seconds}", "equal='seconds'"),
        ("solve: {field: model.d_ff}", "the key 'solve.equal' is missing"),
        ("solve: {field: model.d_ff, equal: flops, pieces: 0}", "pieces=0"),
        ("solve: {field: model.kv_heads, equal: flops}", "it changes model.kv_heads, which is solved for"),
    ],
)
def test_mistakes_name_the_line(tmp_path, text, words):
    path = tmp_path / "rows.yaml"
    path.write_text(f"r: {{group: g, change: {{model.kv_heads: 2}}, {text}}}\n")
    with pytest.raises(UserError, match=r"rows.yaml:1.*row 'r'") as error:
        load_rows(path)
    assert words in str(error.value)


def test_plan_says_what_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["plan", "sweeps/modern-equal.yaml", "--out", str(tmp_path), "--only", "M-gqa-flops"]) == 0
    assert "M-gqa-flops: model.d_ff 328 as trained" in capsys.readouterr().out


def test_a_full_size_row_costs_what_base_costs():
    base = replace(Experiment(), miniature=Miniature())
    solved = row({"model.layer": "lstm"}, "model.d_ff", solve="flops").on(base)
    one, other = (measure(e, {"solve": "flops"}, "x") for e in (apply(base, solved), base))
    assert one == pytest.approx(other, rel=3e-4)
