"""The command line: merging, errors in the user's words with exit code 2, and nothing heavy before they are said."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from dataclasses import fields, replace
from pathlib import Path

import pytest

from lightning_tfm.cli import terminal
from lightning_tfm.cli.arguments import make_parser, parse, settings_text
from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.cli.output import write_to
from lightning_tfm.cli.train.sweep import add_table_options, rows_and_seeds
from lightning_tfm.cli.train.tune import add_search_options, search_from
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import Resources
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, apply, load_rows
from lightning_tfm.study.settings import PLAIN, SECTIONS, load_experiment
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.sweeps import read_search, read_sweep
from lightning_tfm.suggestions import ALIASES
from lightning_tfm.yaml_files import shipped_folder

ROOT = Path(__file__).parents[1]


LIGHT = """
import sys
from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.cli.output import write_to
heavy = "torch lightning optuna sentencepiece wandb pydantic scipy sacrebleu rich".split()
for verb in ([], *([verb] for verb in VERBS)):
    try:
        main([*verb, "--help"])
    except SystemExit as stop:
        assert not stop.code
    found = set(heavy) & set(sys.modules)
    assert not found, (verb, found)
"""
"""help of everything in a fresh interpreter, in which nothing heavy may come"""


ROWS = [p for p in sorted(shipped_folder("experiments").glob("*.yaml")) if "{group: " in p.read_text()]
EXPERIMENTS = [p for p in sorted(shipped_folder("experiments").glob("*.yaml")) if p not in ROWS]


def settings(*argv):
    return parse(make_parser("fit", "test"), argv)


def run_python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=240)


def yaml_file(folder: Path, text: str, name: str = "e.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_files_merge_left_to_right_and_overrides_follow_in_order(tmp_path):
    a = yaml_file(tmp_path, "model: {h: 4, d_k: 128}\ntraining: {adam_eps: 1e-8}", "a.yaml")
    b = yaml_file(tmp_path, "model: {h: 2}\ntrainer: {threads: 3}", "b.yaml")
    merged = settings("--config", a, f"--config={b}")
    assert (merged.base.model.h, merged.base.model.d_k, merged.base.training.adam_eps) == (2, 128, 1e-8)
    assert merged.hardware.threads == 3
    assert settings("--config", b, "--config", a).base.model.h == 4
    assert settings("--config", a, "--model.h", "16").base.model.h == 16
    assert settings("--config", a, "--trainer.devices=2").hardware.devices == 2


@pytest.mark.parametrize("name", ["base", "base-en-fr"])
def test_full_size_laid_over_a_miniature_is_full_size(name):
    """As a sweep of the miniature is told: --config experiments/base.yaml."""
    alone = settings("--config", f"experiments/{name}.yaml").base
    laid = settings("--config", "experiments/miniature.yaml", "--config", f"experiments/{name}.yaml").base
    assert replace(laid, data=replace(laid.data, pairs=alone.data.pairs)) == alone  # pairs: the built-in corpus alone
    assert alone.scaled().training.steps == 100_000


def test_row_seed_and_rows():
    assert settings("--row", "A-h1", "--seed", "5").experiment.model.h == 1
    assert settings("--row", "A-h1", "--seed", "5").experiment.training.seed == 5
    assert settings("--row", "A-h1").base.model.h == 8
    assert settings("--config", "experiments/big.yaml").experiment.model.d_model == 1024


def test_of_seed_and_training_seed_the_later_one_holds(tmp_path):
    a = yaml_file(tmp_path, "seed: 3")
    assert settings("--config", a, "--training.seed", "7").experiment.training.seed == 7
    assert settings("--training.seed", "7", "--config", a).experiment.training.seed == 3
    assert settings("--training.seed", "7", "--config", a, "--seed", "null").experiment.training.seed == 7


def test_two_seeds_in_one_place_may_be_one() -> None:
    assert settings("--seed", "1", "--training.seed", "1").experiment.training.seed == 1
    assert settings("--seed", "1", "--seed", "2").experiment.training.seed == 2


def test_a_smoke_test_is_ten_steps_of_everything_apart_from_results(capsys, tmp_path):
    small = settings("--config", "experiments/miniature.yaml", "--smoke")
    assert small.exact.training.steps == 10 and small.out == Path("results/smoke")
    assert "smoke test: 10 steps of everything, in results/smoke" in capsys.readouterr().err
    assert settings("--out", "there/smoke", "--smoke").out == Path("there/smoke")
    assert settings("--smoke", "--training.steps", "7").exact.training.steps == 10
    averaging = settings(*"--config experiments/base.yaml --row big --smoke --trainer.validate_every 90".split())
    trained = averaging.exact.training
    assert (trained.steps, trained.warmup, trained.average_last, trained.average_every) == (10, 5, 2, 5)
    assert averaging.hardware.validate_every == 0, "it is validated"


def test_a_smoke_test_ends_with_what_to_type_instead_and_without_findings(capsys, monkeypatch, tmp_path):
    from lightning_tfm.cli.train import carry_out as last

    base, none = load_experiment("experiments/miniature.yaml"), Fingerprints("", "")
    study = Ablation(name="mine", base=base, rows=[], seeds=[1], prints=none, V=1, store="")
    monkeypatch.setattr(last, "_table", lambda *_: ([], True))
    monkeypatch.setattr(last, "remember", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["lightning-tfm", "sweep", "my table.yaml", "--smoke", "--seeds", "1-3"])
    for smoke in (True, False):
        assert last.carry_out(study, tmp_path, Resources(), {"smoke": smoke}, []) == 0
        assert capsys.readouterr().out.endswith(": lightning-tfm sweep 'my table.yaml' --seeds 1-3\n") is smoke


def test_python_m_is_the_command():
    def said(*how):
        command = [sys.executable, *how, "fit", "--modle.h", "4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    assert said("-m", "lightning_tfm") == said("-m", "lightning_tfm.cli.main")
    assert said("-m", "lightning_tfm")[0] == 2


TABLES = [p.name for p in sorted(shipped_folder("sweeps").glob("*.yaml")) if "." not in p.stem and p.stem != "search"]


@pytest.mark.parametrize("name", TABLES)
def test_a_smoke_test_of_a_shipped_table_has_ten_steps_in_every_row(name):
    sweep, parser = read_sweep(f"sweeps/{name}"), make_parser("sweep", "test", of_study=True)
    add_table_options(parser)
    read = parse(parser, [*sweep.arguments, "--smoke"])
    trained = [apply(read.base, row).scaled().training for row in rows_and_seeds(sweep, read)[0]]
    assert {(t.steps, t.warmup) for t in trained} == {(10, 5)}


def test_a_smoke_test_of_a_search_stops_nothing_and_searches_no_steps():
    file, parser = read_search("sweeps/search.yaml"), make_parser("tune", "test", of_study=True)
    add_search_options(parser)
    parser.add_argument("--name")
    read = parse(parser, [*file.arguments, "--smoke"])
    assert "training.warmup" in file.specs and file.early is not None
    found = search_from(read, file, Resources())
    assert found.pruner.type == "none" and "training.warmup" not in {p.name for p in found.space}


@pytest.mark.parametrize("verb", ["sweep", "tune", "plan"])
def test_a_study_in_the_place_of_its_file_is_told_resume(tmp_path, capsys, verb):
    (tmp_path / "studies" / "mine").mkdir(parents=True)
    (tmp_path / "studies" / "mine" / "study.json").write_text("{}")
    assert main([verb, "mine", "--out", str(tmp_path)]) == 2
    told = f"'mine' is a study, not a sweep file: lightning-tfm resume mine --out {tmp_path}\n"
    assert capsys.readouterr().err == f"lightning-tfm: {told}"


@pytest.mark.parametrize(
    ("variable", "options", "mode"),
    [("", [], "online"), ("offline", [], "offline"), ("online", ["--mode", "offline"], "offline")],
)
def test_replay_heeds_wandb_mode(tmp_path, monkeypatch, variable, options, mode):
    from lightning_tfm.queue import wandb_mirror

    sent = []
    monkeypatch.setattr(wandb_mirror, "replay", lambda folder, mode, *rest: sent.append(mode))
    monkeypatch.setattr("lightning_tfm.cli.show.wandb._cell_of", lambda path: Cell("base", 1, "0" * 64, 1.0))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    (run := tmp_path / "runs" / "0").mkdir(parents=True)
    (run / "identity.json").write_text("{}")
    assert main(["wandb", "replay", str(run), *options]) == 0
    assert sent == [mode]


def test_replay_refuses_a_mode_that_sends_nothing(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert main(["wandb", "replay", "any"]) == 2
    assert "WANDB_MODE=disabled: nothing would be sent; give --mode offline or --mode online" in capsys.readouterr().err


def test_python_reads_files_as_the_command_line_does(tmp_path):
    rows = yaml_file(tmp_path, "X-one: {group: X, change: {model.h: 2}}", "rows.yaml")
    a = yaml_file(tmp_path, f"row: X-one\nseed: 3\nrows: [{rows}]\nmodel: {{d_k: 128}}", "a.yaml")
    b = yaml_file(tmp_path, "seed: 4\ntrainer: {threads: 3}", "b.yaml")
    assert load_experiment(a, b) == settings("--config", a, "--config", b).experiment
    assert load_experiment(a, b).training.seed == 4 and load_experiment(a, b, seed=5).training.seed == 5
    with pytest.raises(UserError, match=r"rows\.yaml: not an experiment, but a file of rows"):
        load_experiment(rows)


def test_null_takes_back_and_a_leading_zero_is_no_octal(tmp_path):
    a = yaml_file(tmp_path, "row: A-h1\nseed: 3\nout: there")
    back = settings("--config", a, "--row", "null", "--seed", "null", "--out", "null", "--model.h", "010")
    assert (back.row, back.base.training.seed, back.out, back.base.model.h) == (None, 1, Path("results"), 10)


def test_print_config_reads_back(tmp_path, capsys):
    argv = ["--config", "experiments/miniature.yaml", "--row", "big", "--seed", "3", "--trainer.threads", "1"]
    assert main(["fit", *argv, "--print_config"]) == 0
    again = yaml_file(tmp_path, capsys.readouterr().out)
    assert settings("--config", again).experiment == settings(*argv).experiment
    assert settings("--config", again).hardware == settings(*argv).hardware
    assert settings_text(settings("--config", again)) == Path(again).read_text()


@pytest.mark.parametrize("verb", ["plan sweeps/table3.yaml", "draw --to -", "doctor", "data show"])
def test_every_verb_that_offers_to_print_the_experiment_does(tmp_path, capsys, verb):
    argv = ["--config", "experiments/miniature.yaml", "--training.steps", "700", "--out", str(tmp_path / "out")]
    assert main([*verb.split(), *argv, "--print_config"]) == 0
    assert capsys.readouterr().out == settings_text(settings(*argv)) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", ROWS)
def test_every_shipped_file_of_rows_is_valid(path):
    assert load_rows(path)


@pytest.mark.parametrize("path", EXPERIMENTS)
def test_every_shipped_experiment_is_valid_for_every_row(path):
    from lightning_tfm.study.rows import apply
    from lightning_tfm.study.settings import check_experiment

    found = settings("--config", str(path), "--data.folder", "somewhere")
    assert found.exact
    if path.name in ("base.yaml", "miniature.yaml"):
        for row in found.rows.values():
            check_experiment(apply(found.base, row, 1), row.name)


def test_every_help_is_light():
    done = run_python(LIGHT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: lightning-tfm") == 1 + len(VERBS)


def test_a_run_that_is_not_there_is_said_before_torch_is_loaded():
    verbs = ("validate", "test", "translate", "export", "inspect")
    done = run_python(f"""
import sys
from lightning_tfm.cli.main import main
print(*(main([verb, "nowhere"]) for verb in {verbs}), "torch" in sys.modules)
""")
    assert done.stdout.split() == ["2"] * len(verbs) + ["False"], done.stderr
    assert done.stderr.count("run 'nowhere' under results/runs: none") == len(verbs)


def help_of(capsys, *argv: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*argv])
    assert stop.value.code in (0, None)
    return str(capsys.readouterr().out)


def test_help_has_a_screen_of_options_and_topics_for_every_field(capsys):
    parser = make_parser("sweep", "test")
    for verb in ("fit", "sweep", "plan", "tune"):
        page = help_of(capsys, verb, "--help")
        assert len(page.splitlines()) < 70 and len(re.findall(r"^  --", page, re.MULTILINE)) <= 18, verb
        assert "--model." not in page and "--config" in page
    topics = re.findall(r"^  (\w+) ", help_of(capsys, "sweep", "--help").partition("more, by")[2], re.MULTILINE)
    assert topics == ["single", *SECTIONS, "ratios", "seeds", "workers", "slurm"]
    asked = "config out smoke rows name seeds only tune reference workers wandb".split()
    assert re.findall(r"^  --(\w+)", help_of(capsys, "sweep", "--help"), re.MULTILINE) == asked
    said = {topic: help_of(capsys, "sweep", "--help", topic) for topic in topics}
    assert "width of queries and keys, per head" in " ".join(said["model"].split())
    assert "--trainer.micro_tokens" in said["trainer"] and "--no-shared-files" in said["workers"]
    every, of_one = help_of(capsys, "sweep", "-h", "all"), ("--row", "--seed", "--print_config")
    for option in (option for action in parser._actions for option in action.option_strings[-1:]):
        assert option in every or option == "--help", option
        assert sum(f"  {option} " in page for page in said.values()) == ("." in option or option in of_one), option


OFFERED = {
    "lightning-tfm sw": "sweep",
    "lightning-tfm fit --model.kv": "--model.kv_heads",
    "lightning-tfm fit --model.norm ": "post pre sandwich",
    "lightning-tfm fit --model.positions learned_": "learned_scaled",
    "lightning-tfm sweep a/b.yaml --launcher s": "slurm",
    "lightning-tfm data pr": "prepare",
    "lightning-tfm sweep a/b.yaml ": "FILES",
    "lightning-tfm fit --config ": "FILES",
}
"""what is typed -> what a shell offers at its end, sorted; FILES: the names of files"""
IN_BASH = """eval "$(register-python-argcomplete lightning-tfm)"
try() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
    _python_argcomplete lightning-tfm
    words=("${COMPREPLY[@]% }")
    [[ -n ${words[*]} && " ${words[*]} " != *" a/ "* ]] || words=(FILES)
    echo "${words[*]}"
}
"""


@pytest.fixture
def with_program(tmp_path):
    """Environment of a shell that finds our program on its path and no settings of a user's."""
    program = tmp_path / "lightning-tfm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lightning_tfm.cli.main "$@"\n')
    program.chmod(0o755)
    (tmp_path / "a").mkdir()
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / ".own")}
    return (
        os.environ | own | {"XDG_CONFIG_HOME": str(tmp_path / ".own"), "OUT": str(tmp_path / "typed"), "TERM": "dumb"}
    )


def offers(environment: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(environment["OUT"]).parent, timeout=300
    )
    assert not done.stderr
    return [" ".join(sorted(set(line.split()))) for line in done.stdout.splitlines()]


def test_completions_in_bash(with_program):
    """The script as bash reads it, asked for what it would offer at the cursor."""
    script = IN_BASH + "".join(f"try {shlex.quote(line)}\n" for line in OFFERED)
    assert offers(with_program, "bash", "-c", script) == [*OFFERED.values()]


def test_lists_are_continued_below_where_the_terminal_is_narrow(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "width", lambda: 60)
    monkeypatch.chdir(tmp_path)
    small = "--data.pairs 300 --data.vocab_size 300"
    plan = f"plan sweeps/table3.yaml --seeds 61 --only A-h1 {small}"
    for line in ("--help", plan, f"data prepare builtin --config experiments/demo.yaml {small}"):
        assert main(line.split()) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 60 and any(line.startswith(" " * 10) for line in lines), line


def test_a_fit_is_called_by_what_the_command_line_changes(tmp_path):
    a = yaml_file(tmp_path, "model: {h: 4}", "mine.yaml")
    assert settings("--config", a).name == "mine"
    assert settings("--config", a, "--model.d_k", "32", "--seed", "3", "--data.folder", "/x").name == "mine d_k=32"
    assert settings("--row", "A-h1", "--training.warmup", "9").name == "A-h1 warmup=9"


def test_what_other_tools_call_a_field_leads_to_ours():
    for field, others in ALIASES.items():
        section, _, name = field.partition(".")
        assert field in PLAIN or name in {f.name for f in fields(SECTIONS[section])}, field
        for other in others.split():
            assert other not in {f.name for cls in SECTIONS.values() for f in fields(cls)}, other


@pytest.mark.skipif(shutil.which("make") is None, reason="NOT TESTED: there is no make")
def test_make_leaves_an_environment_to_the_clone_that_it_belongs_to(tmp_path):
    """`make docs VENV=…` re-pointed the editable install of another clone, without a word."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages")) / "lightning_tfm-0.1.0.dist-info"
    site.mkdir()
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning_tfm\nVersion: 0.1.0\n")
    for folder, code in (("/somewhere/else", 2), (ROOT, 0)):
        (site / "direct_url.json").write_text(json.dumps({"url": f"file://{folder}", "dir_info": {"editable": True}}))
        done = subprocess.run(["make", "own", f"VENV={home}"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code and ("belongs to the clone in file:///somewhere/else" in done.stderr) == bool(
            code
        )


def test_a_pipe_is_written_to_and_a_link_stays_one(tmp_path, capsys):
    """As root an atomic write to /dev/null would put a file in its place."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_to(pipe, "over")
    assert os.read(reader, 10) == b"over" and pipe.is_fifo() and capsys.readouterr().out == ""
    os.close(reader)
    file.write_text("before")
    link.symlink_to(file)
    write_to(link, "after")
    assert link.is_symlink() and file.read_text() == "after" and capsys.readouterr().out == f"{link}\n"
