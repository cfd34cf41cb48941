"""Scales, ratios, and rows of matched compute."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lightning_tfm.cli.main import main
from lightning_tfm.config import Data, Experiment, Miniature, Training, override
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import count_parameters
from lightning_tfm.study.expressions import FIELDS, PAIRED, measure, solved_lines
from lightning_tfm.study.ratios import BudgetRequest, hold, parameters
from lightning_tfm.study.rows import all_rows, apply, load_rows
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study import Ablation, value_of
from lightning_tfm.study.study_file import load_as, save
from lightning_tfm.study.sweeps import read_sweep
from tests.helpers.studies import ablation, own_row

TWO_ROWS = """
name: two
method: grid
parameters:
  row: {values: [base, A-h1]}
  seed: {values: [1, 2]}
  WIDTHS
command: [lightning-tfm, fit, --config, e.yaml, "${args}"]
"""
EXPERIMENT = """
miniature: {width: 16, depth: 6, hold: ratios, seen: 0.003}
data: {corpus: builtin, vocab_size: 120, max_len: 64, test: ''}
training: {tokens: 200}
evaluation: {beam: 1, extra_len: 4}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    (tmp_path / "option.yaml").write_text(TWO_ROWS.replace("WIDTHS", ""))
    (tmp_path / "file.yaml").write_text(TWO_ROWS.replace("WIDTHS", "miniature.width: {values: [32, 64]}"))
    return tmp_path


def test_each_scale_is_a_study_by_the_ratios(place, capsys):
    assert read_sweep("file.yaml").scales == [32, 64] and read_sweep("option.yaml").scales == []
    assert main(["plan", "option.yaml", "--scales", "32,64", "--rate", "1e9"]) == 0
    asked = capsys.readouterr().out
    assert main(["plan", "file.yaml", "--rate", "1e9"]) == 0
    assert capsys.readouterr().out == asked, "the same runs, whichever way they are asked for"
    held = [int(n.replace(",", "")) for n in re.findall(r"ratios held at ([\d,]+) parameters", asked)]
    assert len(held) == 2 and held[0] < held[1], "the smallest model first"
    runs = re.findall(r"seed \d  +([0-9a-f]{16})", asked)
    assert len(runs) == len(set(runs)) == 8


def test_an_experiment_without_ratios_gets_them(place, capsys):
    (place / "e.yaml").write_text(EXPERIMENT.replace(", hold: ratios, seen: 0.003", ", steps: 50"))
    assert main(["plan", "option.yaml", "--scales", "32,64", "--rate", "1e9"]) == 0
    assert capsys.readouterr().out.count("2.00 unique and 40.0 training target tokens per parameter") == 2


@pytest.mark.long
def test_a_ladder_from_one_command(place, capsys):
    assert main(["sweep", "file.yaml", "--workers", "1", "--trainer.threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "row" in out and "two-64" in out.split("over scales")[0] and "at 65.0M" in out
    assert err.count("ratios held at") == 2
    small, large = (load_as(Ablation, place / "results", f"two-{scale}") for scale in (64, 32))
    assert (small.base.miniature.width, large.base.miniature.width) == (64, 32)
    assert small.base.training.steps < large.base.training.steps
    assert main(["resume", "two-64"]) == 0
    assert "two-64: 4 finished, 0 running, 0 waiting" in capsys.readouterr().err
    assert main(["scaling", "two-64", "two-32", "--format", "json", "--to", "-"]) == 0
    assert list(json.loads(capsys.readouterr().out)["studies"]) == ["two-64", "two-32"]


SWEEP = Path(__file__).parents[2] / "sweeps/table3.yaml"


def base(width, V, tokens, corpus="files"):
    return Experiment(
        data=Data(corpus=corpus, folder="text", vocab_size=V),
        training=Training(tokens=tokens),
        miniature=Miniature(width=width, depth=2),
    )


def text_of(pieces, V, per_pair=12.0):
    """A text of so many target pieces; a smaller share of it needs a little more of them a line."""

    def count(data):
        given = pieces * data.share * (1.1 - 0.1 * data.share)
        return int(given if data.corpus == "files" else data.pairs * per_pair), V

    return count


@pytest.mark.parametrize(
    ("width", "V", "tokens", "d", "steps", "warmup", "factor", "pieces"),
    [(16, 1000, 600, 32, 8000, 320, 1.13, 240_000), (8, 2000, 1500, 64, 12_700, 508, 1.0, 950_000)],
)
def test_the_two_regimes(width, V, tokens, d, steps, warmup, factor, pieces):
    found = hold(base(width, V, tokens), BudgetRequest(), text_of(2_100_000, V))
    t, exact = found.base.training, found.base.scaled()
    assert exact.model.d_model == d and found.parameters == count_parameters(exact.model, V)["total"]
    assert t.steps == pytest.approx(steps, rel=2e-3) and t.warmup == pytest.approx(warmup, abs=1)
    assert t.lr_factor == pytest.approx(factor, abs=0.015)
    assert found.pieces == pytest.approx(pieces, rel=0.01)
    assert found.pieces / found.parameters == pytest.approx(2.0, rel=0.005)
    assert t.steps * t.tokens / found.parameters == pytest.approx(40, rel=1e-3)
    peak = t.lr_factor * d**-0.5 * t.warmup**-0.5
    assert peak * d == pytest.approx(512**-0.5 * 4000**-0.5 * 512, rel=5e-3)
    assert math.sqrt(t.warmup / t.steps) == pytest.approx(0.20, abs=1e-3)


def test_what_follows_is_said():
    found = hold(base(16, 1000, 600), BudgetRequest(), text_of(2_100_000, 1000))
    assert found.lines[0].startswith("ratios held at 119,936 parameters of base: data.share 0.10")
    assert "7,996 steps, warm-up 320, lr_factor 1.13" in found.lines[0]
    assert "2.00 unique and 40.0 training target tokens per parameter, 20.0 epochs;" in found.lines[1]
    quarter = hold(base(16, 1000, 600), BudgetRequest(0.25), text_of(2_100_000, 1000))
    assert quarter.base.data == found.base.data and quarter.base.training.steps == 1999
    assert "10.0 training target tokens per parameter, 5.0 epochs, 0.25 of the paper's budget" in quarter.lines[1]


def test_the_paper_itself_comes_out_at_full_size():
    """Without a divisor: the paper's steps, warm-up and rate within 4 % (63 million parameters)."""
    full = replace(base(1, 37_000, 25_000), miniature=Miniature())
    found = hold(full, BudgetRequest(), text_of(200e6, 37_000)).base.training
    assert found.steps == pytest.approx(100_000, rel=0.04) and found.warmup == pytest.approx(4000, rel=0.04)
    assert found.lr_factor == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    "corpus", ["builtin", *(pytest.param(name, marks=pytest.mark.long) for name in ("builtin-lines", "trees"))]
)
def test_generated_text_is_as_long_as_asked(corpus):
    found = hold(base(16, 1000, 600, corpus), BudgetRequest(), text_of(0, 1000, per_pair=10.4))
    assert found.base.data.share == 1.0
    assert found.base.data.pairs * 10.4 == pytest.approx(2 * 119_936, rel=0.005)


def test_a_text_too_short_names_the_width_that_it_feeds():
    with pytest.raises(UserError, match=r"e.yaml:1: .* 310,000 target tokens, and 951,808 are asked for .*width=16"):
        hold(base(8, 2000, 1500), BudgetRequest(where="e.yaml:1"), text_of(310_000, 2000))
    assert parameters(base(16, 2000, 1), 2000) * 2 <= 310_000 < parameters(base(8, 2000, 1), 2000) * 2
    with pytest.raises(UserError, match="it is too short for any width"):
        hold(base(8, 2000, 1500), BudgetRequest(), text_of(1000, 2000))


FILE = """
miniature: {width: 16, depth: 2, hold: ratios}
data: {corpus: builtin, vocab_size: 120, max_len: 128}
training: {tokens: 600}
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Where those that ratios derive are made once for all."""
    folder = tmp_path_factory.mktemp("ratios")
    (folder / "e.yaml").write_text(FILE)
    return folder


@pytest.fixture
def there(texts, monkeypatch):
    monkeypatch.chdir(texts)


@pytest.mark.parametrize(("key", "value"), [("miniature.steps", "50"), ("training.lr_factor", "1.0")])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.usefixtures("there")
def test_nor_may_one_on_the_command_line_whether_before_or_after_it(key, value, before, capsys):
    """The divisor of the steps trained a fiftieth of what was said, and a default went unnoticed."""
    typed, file = [f"--{key}={value}"], ["--config", "e.yaml"]
    assert main(["fit", *(typed + file if before else file + typed), "--print_config"]) == 2
    assert f"command line: miniature.hold=ratios derives {key} (" in capsys.readouterr().err
    assert main(["plan", str(SWEEP), *file, "--scales", "32", "--seeds", "1", *typed]) == 2
    assert f"derives {key} (" in capsys.readouterr().err


@pytest.mark.usefixtures("there")
def test_it_prints_plain_numbers_that_it_reads_back(capsys):
    assert main(["fit", "--config", "e.yaml", "--print_config"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# ratios held at ") and "hold:" not in printed
    Path("plain.yaml").write_text(printed)
    assert main(["fit", "--config", "plain.yaml", "--print_config"]) == 0
    again = capsys.readouterr().out
    assert yaml.safe_load(again) == yaml.safe_load(printed)
    t = load_experiment("plain.yaml").training
    rows = all_rows()
    assert apply(load_experiment("plain.yaml"), rows["big"]).training.steps == 3 * t.steps
    with pytest.raises(UserError, match="takes the text: load what"):
        load_experiment("e.yaml")


@pytest.mark.usefixtures("there")
def test_it_takes_back_what_was_said_before_it(capsys):
    Path("before.yaml").write_text("miniature: {steps: 50}\ntraining: {warmup: 300}\ndata: {pairs: 2700}")
    assert main(["fit", "--config", "e.yaml", "--print_config"]) == 0
    alone = capsys.readouterr().out
    assert main(["fit", "--config", "before.yaml", "--config", "e.yaml", "--print_config"]) == 0
    assert capsys.readouterr().out == alone
    assert main(["fit", "--config", "e.yaml", "--config", "before.yaml", "--print_config"]) == 2
    assert "before.yaml:1: miniature.hold=ratios derives miniature.steps (1)" in capsys.readouterr().err
    assert main(["plan", str(SWEEP), "--config", "e.yaml", "--seeds", "1", "--rate", "1e9"]) == 0
    assert capsys.readouterr().out.startswith("ratios held at ")


ROOT = Path(__file__).parents[2]
MINIATURE = load_experiment(ROOT / "experiments/miniature.yaml")
FILES = ("experiments/layers-equal.yaml", "experiments/modern-equal.yaml")
SHIPPED = [row for file in FILES for row in load_rows(ROOT / file)]


def row(change, key, **asked):
    return own_row("r", change | {key: asked})


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


def test_the_study_keeps_the_number_and_why(tmp_path):
    solved = SHIPPED[0].on(MINIATURE)
    assert isinstance(solved.change["model.d_ff"], int) and solved.change["model.d_ff"] % 8 == 0
    assert solved.ties == {"model.d_ff": {"solve": "flops", "pieces": 12}}
    save(ablation([SHIPPED[0]], name="s", base=MINIATURE), tmp_path)
    assert load_as(Ablation, tmp_path, "s").rows == [solved]
    (line,) = solved_lines(MINIATURE, [SHIPPED[0]])
    assert line == "L-lstm-flops: model.d_ff 140 as trained, for base's flops at 12 tokens per sentence: 0.00 % left"
    assert solved_lines(MINIATURE, [solved]) == [line], "however it was laid on base"


def test_plan_says_what_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["plan", "sweeps/modern-equal.yaml", "--out", str(tmp_path), "--only", "M-gqa-flops"]) == 0
    assert "M-gqa-flops: model.d_ff 328 as trained" in capsys.readouterr().out
