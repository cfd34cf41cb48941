"""What a file of scores may look like, what is wrong with it in one line, and scores from Lightning without one."""

import csv
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import lightning
import numpy as np
import pandas
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

import lightning_tfm
from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.judging import scores
from lightning_tfm.judging.scores import aim, read_logs, read_scores
from tests.helpers.tables import read_tables

HEAD = "row,seed,acc\n"
ACC = [aim("acc:higher")]


def written(folder: Path, text: str | bytes, name: str = "scores.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scores.csv", "row,seed,acc,loss\nbase,1,0.5,2\nbase,2,0.6,3\n"),
        ("scores.csv", "\ufeffloss;acc;seed;row\r\n2;0.5;1;base\r\n3;0.6;2;base\r\n"),
        ("scores.csv", "row\tseed\tmetric\tvalue\nbase\t1\tacc\t0.5\nbase\t1\tloss\t2\nbase\t2\tacc\t0.6\n"),
        ("scores.jsonl", '{"row": "base", "seed": 1, "acc": 0.5}\n\n{"row": "base", "seed": 2, "acc": 0.6}\n'),
        ("scores.jsonl", '{"row": "base", "seed": 1, "metric": "acc", "value": 0.5}\n'
                         '{"row": "base", "seed": 2, "metric": "acc", "value": 0.6}'),
    ],
    ids=["wide", "semicolons", "long", "json", "long json"],
)  # fmt: skip
def test_all_forms_are_the_same_runs(tmp_path, name, text):
    assert read_scores(written(tmp_path, text, name), ACC).of("base", "acc") == {"1": 0.5, "2": 0.6}


NOT_AS_TEXT = [
    (HEAD.encode() + b"base,1,0.5\nb\xff\xfe,2,1\n", "line 3: bytes that are no text"),
    (HEAD.replace("\n", "\r") + "base,1,0.5\r", "line 1: new-line character seen in unquoted field"),
    (HEAD + f"base,1,{'x' * 1000}\n", f"line 2: acc='{'x' * 60}' is no number"),
    ("", "line 1: is empty"),
]


@pytest.mark.parametrize(
    ("text", "said"), [*read_tables(Path(__file__).with_name("wrong_scores.txt"))["wrong"], *NOT_AS_TEXT]
)
def test_wrong_input_is_one_line_with_its_line_number(tmp_path, text, said):
    with pytest.raises(UserError, match=r"scores\.csv") as error:
        read_scores(written(tmp_path, text), ACC)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_json_that_is_none_is_refused_by_line(tmp_path):
    for line in ("[1]", "{", "[" * 100_000):
        with pytest.raises(UserError, match="line 1: no JSON object"):
            read_scores(written(tmp_path, line, "scores.jsonl"), ACC)


def test_a_line_that_lacks_what_the_first_has_is_named(tmp_path):
    line = '{"row": "base", "seed": 1, "acc": 0.5}\n'
    for other, said in (
        ('{"row": "x", "acc": 1}', "line 2: no column 'seed'"),
        ('{"row": "x", "seed": []}', "is no name"),
    ):
        with pytest.raises(UserError, match=said):
            read_scores(written(tmp_path, line + other, "scores.jsonl"), ACC)
    late = read_scores(written(tmp_path, '{"row": "x", "seed": 1}\n' + line, "scores.jsonl"), ACC)
    assert late.runs == {"x": {"1": {}}, "base": {"1": {"acc": 0.5}}}, "a row without any score is not lost"
    with pytest.raises(UserError, match="no column 'loss'"):
        read_scores(written(tmp_path, line, "scores.jsonl"), [*ACC, aim("loss:lower")])


def test_lines_of_blanks_are_passed_over_and_quoted_cells_may_have_several_lines(tmp_path):
    text = 'row,seed,acc,note\nbase,1,0.5,"a\nb ""c"""\n   \n,,,\nbase,2,0.6,\n\n'
    assert read_scores(written(tmp_path, text), ACC).of("base", "acc") == {"1": 0.5, "2": 0.6}


def test_nan_and_infinity_are_runs_that_diverged(tmp_path):
    found = read_scores(written(tmp_path, HEAD + "base,1,nan\nbase,2,-inf\nbase,3,0.5\nbase,4,1e300\n"), ACC).of(
        "base", "acc"
    )
    huge = read_scores(written(tmp_path, f'{{"row": "base", "seed": 1, "acc": {10**400}}}', "scores.jsonl"), ACC)
    assert math.isnan(huge.of("base", "acc")["1"])
    assert [math.isnan(x) for x in found.values()] == [True, True, False, True]


def test_seeds_are_in_the_order_of_their_numbers(tmp_path):
    found = read_scores(written(tmp_path, HEAD + "base,10,1\nbase,9,2\n"), ACC)
    assert list(found.of("base", "acc")) == ["9", "10"]


def test_a_seed_that_one_row_lacks_is_named(tmp_path):
    lines = [f"{row},{seed},0.{seed}" for row in "abc" for seed in (1, 2, 3) if (row, seed) != ("b", 2)]
    assert read_scores(written(tmp_path, HEAD + "\n".join(lines)), ACC).missing() == ["b: no seed 2; used as it is"]


def test_an_empty_cell_is_named_though_no_other_row_has_its_seed(tmp_path):
    scores = read_scores(written(tmp_path, HEAD + "base,1,1\nb,1,2\nb,3,\nb,2,\n"), ACC)
    assert scores.notes == ["b: seed 2, 3 without acc; used as it is"] and scores.of("b", "acc") == {"1": 2.0}
    once = read_scores(written(tmp_path, HEAD + "base,1,1\nbase,2,1\nb,1,2\nb,2, \n"), ACC)
    assert [*once.notes, *once.missing()] == ["b: seed 2 without acc; used as it is"]
    later = read_scores(written(tmp_path, HEAD + "base,1,\nbase,1,1\nb,1,2\nb,1,\n"), ACC)
    assert later.notes == [], "the score of a run may stand in another line than its other metrics"


def test_a_letter_with_an_accent_is_one_however_a_file_spells_it(tmp_path):
    """Else half of a row's seeds, named on another system, are a row of their own."""
    two = "base,1,1\ncaf\N{LATIN SMALL LETTER E WITH ACUTE},1,2\ncafe\N{COMBINING ACUTE ACCENT},2,3\n"
    assert read_scores(written(tmp_path, HEAD + two), ACC).of("café", "acc") == {"1": 2.0, "2": 3.0}


def test_more_lines_than_are_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "MOST", 3)
    lines = [f"base,{seed},0.5\n" for seed in range(4)]
    assert len(read_scores(written(tmp_path, HEAD + "".join(lines[:3])), ACC).of("base", "acc")) == 3
    with pytest.raises(UserError, match="more than 3 lines"):
        read_scores(written(tmp_path, HEAD + "".join(lines)), ACC)
    with pytest.raises(UserError, match="line 2 is longer than"):
        read_scores(written(tmp_path, HEAD + "a" * (scores.LONGEST + 1)), ACC)


@pytest.mark.parametrize("text", ["acc:lower", "acc:lower:log"])
def test_scores_of_which_a_table_would_show_zeros_are_refused(tmp_path, text):
    small = "base,1,nan\nbase,2,-2e-{0}\nx,1,0\n" if text == "acc:lower" else "base,1,2e-{0}\nx,1,1e-{0}\n"
    with pytest.raises(UserError, match="every acc is below 1e-14 and would read 0"):
        read_scores(written(tmp_path, HEAD + small.format(15)), [aim(text)])
    assert read_scores(written(tmp_path, HEAD + small.format(14)), [aim(text)]).of("base", "acc")


def test_a_logarithm_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="line 2: acc=0 has no logarithm"):
        read_scores(written(tmp_path, HEAD + "base,1,0\n"), [aim("acc:higher:log")])


@pytest.mark.parametrize("text", ["acc", "acc:up", "acc:higher:-1", "acc:higher:nan", "acc:higher:log:x", ":higher"])
def test_a_metric_without_a_direction_or_with_no_margin_is_refused(text):
    with pytest.raises(UserError, match=f"--metric {text}: "):
        aim(text)


def test_names_of_columns_may_hold_colons_and_slashes():
    found = aim("val/acc:top5:higher:log:0.01")
    assert (found.name, found.lower_is_better, found.log, found.margin) == ("val/acc:top5", False, True, 0.01)


def test_a_name_does_nothing_in_a_terminal_a_page_a_paper_or_a_spreadsheet(tmp_path, capsys):
    evil = "=cmd|' /C calc'!A0 <script>alert(1)</script> \x1b[31m\u202e\\input{x}"
    lines = [json.dumps({"row": row, "seed": s, "acc": 0.1 * s}) for row in ("base", evil) for s in range(5)]
    path = written(tmp_path, "\n".join(lines), "scores.jsonl")
    for kind in ("text", "markdown", "csv", "json", "latex", "html"):
        assert main(["judge", str(path), "--metric", "acc:higher", "--format", kind, "--to", "-"]) == 0
        said = capsys.readouterr().out
        assert "\x1b" not in said and "\u202e" not in said, kind
        assert "<script>alert" not in said or kind in ("text", "csv", "json"), kind
        assert kind != "latex" or r"\input" not in said
        assert kind != "csv" or "\n'=cmd" in said.replace('"', "")


# --- scores from Lightning without a file by hand: the callback, and the versions of CSVLogger ---


VAL_ACC = [aim("val_acc:higher")]


class Tiny(lightning.LightningModule):
    """A model that is not ours."""

    def __init__(self, variant: str = "base", seed: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        return self.layer(batch[0]).mean()

    def validation_step(self, batch, _):
        self.log("val_acc", float(self.hparams.seed) + 0.5)

    def test_step(self, batch, _):
        self.log("test_acc", 0.25)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer(folder: Path, *callbacks: lightning.Callback, logs: bool = False) -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=1,
        log_every_n_steps=1,
        accelerator="cpu",
        logger=CSVLogger(folder, name="lightning_logs") if logs else False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        use_distributed_sampler=False,
    )


def data() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)), batch_size=2)


def lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_trainer_writes_its_scores_and_a_repeated_run_replaces_them(tmp_path):
    path = tmp_path / "new" / "scores.csv"
    for seed in (1, 2, 1):
        made = trainer(tmp_path, lightning_tfm.Scores(path, row="gated", seed=seed))
        made.fit(Tiny(seed=seed), data(), data())
        made.test(dataloaders=data(), model=Tiny(seed=seed), verbose=False)
    found = lines(path)
    assert [(x["row"], x["seed"], x["val_acc"], x["test_acc"]) for x in found] == [
        ("gated", "2", "2.5", "0.25"),
        ("gated", "1", "1.5", "0.25"),
    ]
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".tmp"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no columns 'row' and 'seed'"),
        ("row,seed,acc\nx,2,0.5,7\n", "line 2: 4 cells, where the first line has 3"),
    ],
)
def test_a_file_that_holds_something_else_is_left_alone_and_nothing_is_trained(tmp_path, text, words):
    path, model = tmp_path / "scores.csv", Tiny()
    path.write_text(text)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match=words):
        trainer(tmp_path, lightning_tfm.Scores(path, row="x", seed=1)).fit(model, data(), data())
    assert path.read_text() == text
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_metric_called_seed_does_not_rename_the_run(tmp_path):
    path, of = tmp_path / "scores.csv", SimpleNamespace(interrupted=False, is_global_zero=True, fast_dev_run=False)
    path.touch()
    of.callback_metrics = {"seed": 7.0, "row": 1.0, "acc": 0.5}
    lightning_tfm.Scores(path, row="x", seed=1).on_fit_end(of, Tiny())
    assert lines(path) == [{"row": "x", "seed": "1", "acc": "0.5"}]
    with pytest.raises(UserError, match="a run is named by both"):
        lightning_tfm.Scores(path, row=" ", seed=1)


def test_sixteen_processes_lose_no_line(tmp_path, forks):
    path = tmp_path / "scores.csv"

    def write(seed: int) -> None:
        for turn in range(5):
            values = {"callback_metrics": {"acc": turn}, "is_global_zero": True}
            trainer = SimpleNamespace(interrupted=False, fast_dev_run=False, **values)
            lightning_tfm.Scores(path, row="a", seed=seed).on_fit_end(trainer, None)

    writers = [forks.start(lambda seed=seed: write(seed)) for seed in range(16)]
    assert [forks.join(pid) for pid in writers] == [0] * 16
    assert sorted(int(x["seed"]) for x in lines(path)) == list(range(16))
    assert {x["acc"] for x in lines(path)} == {"4.0"}


def logs(folder: Path, versions: dict[str, tuple[str, list[str]]], age: float = 3600) -> Path:
    """version -> (hparams.yaml, values of val_acc)."""
    for name, (hparams, values) in versions.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "hparams.yaml").write_text(hparams)
        path = folder / name / "metrics.csv"
        path.write_text("epoch,step,val_acc\n" + "".join(f"{i},{i},{v}\n" for i, v in enumerate(values)))
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    return folder


def test_versions_of_a_logger_are_runs(tmp_path, capsys):
    for variant in ("base", "gated"):
        for seed in (1, 2):
            trainer(tmp_path, logs=True).fit(Tiny(variant, seed), data(), data())
    folder = tmp_path / "lightning_logs"
    for path in folder.rglob("metrics.csv"):
        os.utime(path, (0, 0))
    found = read_logs(folder, VAL_ACC, "hparams.variant", "hparams.seed", [])
    assert found.of("gated", "val_acc") == {"1": 1.5, "2": 2.5}
    names = ["--row", "hparams.variant", "--seed", "hparams.seed", "--metric", "val_acc:higher"]
    assert main(["judge", str(folder), *names, "--last", "val_acc"]) == 0
    assert "3 more seeds" in capsys.readouterr().out


def test_last_or_best_and_the_best_warns_of_selection(tmp_path):
    folder = logs(tmp_path, {"version_0": ("variant: a\nseed: 1\n", ["0.1", "", "0.9", "0.5"])})
    last, best = (read_logs(folder, VAL_ACC, "hparams.variant", "hparams.seed", of) for of in ([], ["val_acc"]))
    assert last.of("a", "val_acc") == {"1": 0.5} and best.of("a", "val_acc") == {"1": 0.9}
    assert not last.notes and "selected by what is judged" in best.notes[0]


def test_last_and_best_of_one_metric_are_refused(tmp_path, capsys):
    folder = logs(tmp_path, {"version_0": ("variant: a\nseed: 1\n", ["0.1"])})
    both = ["--metric", "val_acc:higher", "--last", "val_acc", "--best", "val_acc"]
    assert main(["judge", str(folder), *both]) == 2
    assert "--last val_acc and --best val_acc: one of them counts" in capsys.readouterr().err


def test_aliases_of_aliases_are_not_followed_for_ever(tmp_path):
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}" for i in range(1, 9)]
    folder = logs(tmp_path, {"version_0": ("\n".join(lines), ["0.1"])})
    with pytest.raises(UserError, match="more than 100,000 values"):
        read_logs(folder, VAL_ACC, "hparams.v", "hparams.seed", [])


def test_runs_that_are_still_written_are_left_out_and_named(tmp_path):
    logs(tmp_path, {"version_0": ("variant: a\nseed: 1\n", ["0.1"]), "version_2": ("variant: a\nseed: 3\n", [""])})
    logs(tmp_path, {"version_1": ("variant: a\nseed: 2\n", ["0.1"])}, age=0)
    found = read_logs(tmp_path, VAL_ACC, "hparams.variant", "hparams.seed", [])
    assert list(found.of("a", "val_acc")) == ["1"]
    assert "a: seed 3 without val_acc; used as it is" in found.notes
    assert "version_1: left out, as it was written to within a minute" in found.notes


def test_a_log_that_holds_something_else_is_refused_by_its_line(tmp_path):
    folder = logs(tmp_path, {"version_0": ("variant: a\nseed: 1\n", ["0.1"])})
    path = folder / "version_0" / "metrics.csv"
    for text, said in (
        ("epoch,val_acc\n0,0.5\n1\n", r"metrics\.csv, line 3: 1 cell, where the first line has 2"),
        ("epoch,val_acc\n0," + "9" * 200_000, r"metrics\.csv, line 2: field larger than field limit"),
        ("epoch,acc\n0,0.5\n", "no run has a number in val_acc"),
        ("", "no run has a number in val_acc"),
    ):
        path.write_text(text)
        os.utime(path, (0, 0))
        with pytest.raises(UserError, match=said):
            read_logs(folder, VAL_ACC, "hparams.variant", "hparams.seed", [])


def test_a_folder_of_logs_may_be_the_one_that_the_command_runs_in(tmp_path, capsys, monkeypatch):
    names = {f"version_{i}": (f"v: {row}\ns: {i % 5}\n", [f"0.{i}"]) for i, row in enumerate(["base"] * 5 + ["x"] * 5)}
    monkeypatch.chdir(logs(tmp_path / "logs", names))
    judged = ["judge", ".", "--row", "hparams.v", "--seed", "hparams.s", "--metric", "val_acc:higher"]
    assert main([*judged, "--format", "html"]) == 0 and (tmp_path / "judge.html").is_file()
    assert main([*judged, "--gate", "x", "--looks", "5,8"]) == 0 and (tmp_path / "logs.gate.json").is_file()
    capsys.readouterr()


def test_hparams_construct_nothing_and_what_is_missing_is_named(tmp_path):
    evil = "variant: !!python/object/apply:os.system ['touch owned']\nseed: 1\nopt:\n  lr: !!python/tuple [1]\n"
    folder = logs(tmp_path / "a", {"version_0": (evil, ["0.1"])})
    with pytest.raises(UserError, match=r"no column 'hparams\.variant'"):
        read_logs(folder, VAL_ACC, "hparams.variant", "hparams.seed", [])
    assert not Path("owned").exists()
    twice = logs(tmp_path / "b", {f"version_{i}": ("m: {v: x}\nseed: 1\n", ["0.1"]) for i in range(2)})
    with pytest.raises(UserError, match="version_1: row 'x', seed 1 has its val_acc in version_0"):
        read_logs(twice, VAL_ACC, "hparams.m.v", "hparams.seed", [])
    with pytest.raises(UserError, match=r"no column 'row'; name it by --row COLUMN"):
        read_logs(twice, VAL_ACC, "row", "seed", [])
    with pytest.raises(UserError, match=r"no metrics\.csv"):
        read_logs(tmp_path / "c", VAL_ACC, "hparams.v", "hparams.seed", [])


@pytest.mark.parametrize(
    "frame, metrics, words",
    [
        (
            [{"row": "base", "seed": 1, "loss": 2.0}],
            "loss:lower",
            "metrics='loss:lower': expected a dict such as {'acc': 'higher'}",
        ),
        ({"row": ["base"]}, {"loss": "lower"}, "'row' is no run: expected a DataFrame or a list of dicts"),
        ([{"name": "base"}], {"loss": "lower"}, "no column 'row'; name it by --row COLUMN or row=COLUMN"),
        (Path("scores.csv"), {"loss": "lower"}, "'scores.csv': expected a DataFrame or a list of dicts"),
        (
            [{"row": "base", "seed": 1, "loss": np.array([1.0, 2.0])}],
            {"loss": "lower"},
            "loss='[1. 2.]' is no number",
        ),
        (
            pandas.DataFrame([["base", 1, 2.0, 3.0]], columns=["row", "seed", "loss", "loss"]),
            {"loss": "lower"},
            "scores: column 'loss' is there twice",
        ),
    ],
)
def test_what_python_gives_wrong_is_said_in_its_words(frame, metrics, words):
    with pytest.raises(UserError) as raised:
        lightning_tfm.judge(frame, metrics=metrics)
    assert words in str(raised.value)
