"""Searches whose runs have two ranks each, trained for real: both stop at the same step; ranks that differ refuse."""

import re
from dataclasses import replace
from pathlib import Path

from lightning_tfm.config import Hardware, override
from lightning_tfm.data.prepare import prepare
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.search import Search
from lightning_tfm.study.study_file import save
from lightning_tfm.study.sweeps import Parameter, Pruner
from lightning_tfm.watch.run_state import Curve
from tests.helpers import held
from tests.helpers.tiny import experiment, in_child, write_corpus

HARDWARE = Hardware(accelerator="cpu", devices=2, threads=1, validate_every=4, log_every=4, checkpoint_every=1000)


def search_with_two_ranks(root: str) -> list:
    from lightning_tfm.queue.launch import run_study
    from lightning_tfm.queue.pool import Job
    from lightning_tfm.queue.resources import Resources
    from lightning_tfm.queue.training import Training

    out = Path(root) / "out"
    base = experiment(write_corpus(Path(root) / "text"), training__steps=60, training__warmup=5)
    base = override(base, {"model.positions": held.NAME}, "tests")  # long enough for the worker to look in between
    prepared = prepare(base.data, out)
    prints = Fingerprints(prepared.train_fingerprint, prepared.fingerprint(base.data.dev))
    rates = [Parameter("training.lr_factor", "categorical", [0.5, 1e-5])]
    made = Search(
        name="s",
        base=base,
        space=rates,
        sampler="grid",
        seed=0,
        trials=1,
        objectives={"dev/ppl": "minimize"},
        constraints={},
        pruner=Pruner("median", 1, 3, 1),
        prints=prints,
        V=prepared.tokenizer.V,
        store=prepared.folder.name,
        based=False,
    )
    save(made, out)
    cells = [replace(cell, cost=-number) for number, cell in enumerate(made.cells())]  # the good one first
    resources = Resources(hardware=HARDWARE)
    job = Job(made, out, Training(made, HARDWARE, out), resources, first_validation=4)
    with (Path(root) / "shown").open("w") as stream:
        states = run_study(job, cells, stream)
    return [(s.cell.row, s.state, s.reason, s.cell.training_hash) for s in states]


def test_both_ranks_stop_at_the_same_step(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(held.VARIABLE, str(tmp_path / "never"))
    (_, good, _, _), (_, bad, reason, name) = in_child(search_with_two_ranks, str(tmp_path))
    assert (good, bad) == ("done", "pruned"), (tmp_path / "shown").read_text()
    folder = RunFolder(tmp_path / "out", name)
    steps = re.findall(r"rank (\d): stopped after step (\d+) as unpromising", folder.log.read_text())
    assert sorted(rank for rank, _ in steps) == ["0", "1"] and len({step for _, step in steps}) == 1
    assert f"median at step 8; stopped after step {steps[0][1]}" == reason
    assert not folder.finished()


def ranks_that_differ(root: str) -> str:
    import os

    from lightning_tfm.accel import select
    from lightning_tfm.config import training_hash, training_identity
    from lightning_tfm.runs.outcome import RunFailed
    from lightning_tfm.runs.process.ranks import fork_ranks
    from lightning_tfm.runs.result import Result
    from lightning_tfm.runs.train import Run

    out = Path(root) / "out"
    base = experiment(write_corpus(Path(root) / "text"))
    prepared = prepare(base.data, out)
    identity = training_identity(base, prepared.train_fingerprint, {})
    attempt = RunFolder(out, training_hash(identity)).claim()
    attempt.write_json(attempt.folder.identity, identity)

    def one_rank() -> None:
        other = experiment(Path(root) / "text", training__lr_factor=2.0)
        asked = base if os.environ["RANK"] == "0" else other
        Run(asked, HARDWARE, attempt, prepared.folder, select.backend, Result()).train()

    try:
        fork_ranks(one_rank, 2, 1)
    except RunFailed as error:
        return f"{error.outcome}: {error}, {len(Curve.of(attempt.folder.path).lines)} records"
    return "trained"


def test_ranks_with_other_configurations_refuse_to_start(tmp_path: Path) -> None:
    said = in_child(ranks_that_differ, str(tmp_path))
    assert said.startswith("refused: ") and "ranks 1 were given a configuration that differs from rank 0" in said
    assert "0 records" in said
