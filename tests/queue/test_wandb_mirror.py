"""The mirror in W&B's offline mode, read back with W&B's own tool."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb

from lightning_tfm.queue.wandb_mirror import Mirror, mirrored, send_verdicts
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.cell import Cell
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for
from tests.queue.offline import read_all, read_back

TRANSLATIONS = ["eins\u2028noch\x85eins", "", "zwei"]
CELLS = [Cell(f"r{i}", 1, f"{i}abc".ljust(64, "0"), 1.0) for i in range(2)]


def write_run(root: Path, cell: Cell, steps: range, whole: bool, **scored: Any) -> None:
    folder = RunFolder(root, cell.training_hash)
    attempt = folder.claim()
    attempt.write_json(folder.experiment, {"model": {"h": 4}})
    for step in steps:
        attempt.append_metrics({"step": step, "loss": 5 / step, "lr": 0.1})
        attempt.append_metrics({"step": step, "dev_ppl": 9 / step})
    if whole:
        hyp = folder.scores("e" * 64) / "val.hyp.txt"
        attempt.write(hyp, "".join(f"{line}\n" for line in TRANSLATIONS).encode())
        leave(attempt, ppl=2.5, bleu=11.0, **scored)
    attempt.release()


pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def quiet(monkeypatch) -> None:
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def test_one_run_each_with_our_values_and_a_resumed_one_repeats_no_step(tmp_path: Path, forks, monkeypatch) -> None:
    folder = tmp_path / "studies" / "s"

    def look() -> None:
        wandb.setup()  # a service that was started elsewhere (WANDB_SERVICE) has a working directory of its own
        monkeypatch.chdir(tmp_path)
        mirror = Mirror(Path("studies/s"), "offline", "s")
        mirror.look(tmp_path, CELLS)
        mirror.close()

    write_run(tmp_path, CELLS[0], range(1, 7), whole=True)
    write_run(tmp_path, CELLS[1], range(1, 4), whole=False)
    assert forks.join(forks.start(look)) == 0
    # W&B calls the second folder of one second …-1
    (half,) = folder.glob(f"wandb/offline-run-*-{CELLS[1].training_hash[:16]}")
    half.rename(half.with_name(f"offline-run-20260101_000000-{half.name.split('-')[3]}-1"))
    write_run(tmp_path, CELLS[1], range(4, 7), whole=True)
    assert forks.join(forks.start(look)) == 0
    found = read_back(folder)
    assert sorted(found) == [cell.training_hash[:16] for cell in CELLS]
    for history in found.values():
        steps = [h for h in history if "train/loss" in h]
        assert [h["optimizer_step"] for h in steps] == [1, 2, 3, 4, 5, 6]
        assert all(h["train/loss"] == 5 / h["optimizer_step"] for h in steps)
        assert all(h["dev/ppl"] == 9 / h["optimizer_step"] for h in steps)
        assert [h["dev/bleu"] for h in history if "dev/bleu" in h] == [11.0]


def test_a_row_that_was_renamed_has_its_new_name_there_and_is_sent_once_more(tmp_path: Path, forks) -> None:
    folder, (cell, shared) = tmp_path / "studies" / "s", CELLS
    write_run(tmp_path, cell, range(1, 4), whole=True)
    write_run(tmp_path, shared, range(1, 4), whole=True)

    def look(group: str, *cells: Cell) -> None:
        mirror = Mirror(folder, "offline", group)
        mirror.look(tmp_path, list(cells))
        mirror.close()

    renamed = replace(cell, row="wide")
    assert forks.join(forks.start(lambda: look("s", cell, shared))) == 0
    for _ in range(2):
        assert forks.join(forks.start(lambda: look("s", renamed, shared))) == 0
    assert forks.join(forks.start(lambda: look("another", replace(shared, row="theirs")))) == 0
    items = [item for item in read_all(folder)[cell.training_hash[:16]] if item["type"] == "run"]
    assert [item["run"]["display_name"] for item in items] == ["r0 seed 1", "wide seed 1"], "once"
    summary = [
        item["summary"]["update"] for item in read_all(folder)[cell.training_hash[:16]] if item["type"] == "summary"
    ]
    assert [one["row"] for one in summary if "row" in one][-1] == "wide"
    (theirs,) = [item for item in read_all(folder)[shared.training_hash[:16]] if item["type"] == "run"]
    assert theirs["run"]["display_name"] == "r1 seed 1", "the study that sent a run names it"


def test_summaries_say_what_a_run_is_and_verdicts_and_translations_are_tables(tmp_path: Path, forks) -> None:
    folder, said = tmp_path / "studies" / "s", []
    cells = [Cell("base", 1, CELLS[0].training_hash, 1.0), Cell("r1", 1, CELLS[1].training_hash, 1.0)]
    for cell in cells:
        write_run(tmp_path, cell, range(1, 3), whole=True)
    ppl = ["ppl difference percent estimate", "ppl difference verdict"]
    heads = ["row", "flops", *ppl, "bleu difference estimate", "bleu difference verdict"]
    rows = [["base", 1e9, None, None, None, None], ["r1", 2e9, 3.5, "reproduced", -0.2, "undecided"]]

    def send() -> None:
        mirror = Mirror(folder, "offline", "s")
        mirror.look(tmp_path, cells)
        mirror.close()
        send_verdicts(folder, "offline", "s", (heads, rows, {"differences": "<svg/>"}), said.append)
        assert not said, said

    assert forks.join(forks.start(send)) == 0
    found = read_all(folder)
    summaries = {run: {} for run in found}
    for run, items in found.items():
        for item in items:
            summaries[run] |= item["summary"]["update"] if item["type"] == "summary" else {}
    other = summaries[CELLS[1].training_hash[:16]]
    assert (other["row"], other["seed"], other["study"], other["flops"]) == ("r1", 1, "s", 10**11)
    table = summaries["table-s"]
    assert [table[f"r1/{head}"] for head in (*ppl, "flops")] == [3.5, "reproduced", 2e9]
    assert (table["verdicts.nrows"], table["verdicts.ncols"]) == (2, 6)
    (page,) = folder.glob("wandb/offline-run-*-table-s/files/media/html/differences*.html")
    assert page.read_text() == "<svg/>"
    (path,) = folder.glob("wandb/offline-run-*-table-s/files/media/table/verdicts*.json")
    assert json.loads(path.read_text()) == {"columns": heads, "data": rows}, "numbers as numbers"
    tables = [json.loads(p.read_text()) for p in folder.glob("wandb/*/files/media/table/dev/translations*.json")]
    assert [table["data"] for table in tables] == [[[i, line] for i, line in enumerate(TRANSLATIONS)]] * 2


def test_a_mirror_that_died_is_started_again_once_and_sends_all(tmp_path: Path) -> None:
    said: list[str] = []
    folder, died = tmp_path / "studies" / "s", tmp_path / "died"
    write_run(tmp_path, CELLS[0], range(1, 7), whole=True)

    def cells() -> list[Cell]:
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return CELLS[:1]

    with mirrored("offline", tmp_path, "s", folder, cells, said.append):
        wait_for(died.exists, 10, "the mirror's first look")
    (history,) = read_back(folder).values()
    assert [h["optimizer_step"] for h in history if "train/loss" in h] == [1, 2, 3, 4, 5, 6] and not said


def test_a_killed_mirror_harms_nobody_and_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    write_run(tmp_path, CELLS[0], range(1, 3), whole=False)

    def broken() -> list[Cell]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    folder = tmp_path / "studies" / "s"
    with mirrored("offline", tmp_path, "s", folder, broken, said.append):
        pass
    assert len(said) == 1 and "no run was harmed" in said[0] and "wandb replay s" in said[0]
    assert f", see {folder / 'mirror.log'}; " in said[0] and (folder / "mirror.log").is_file()


def test_a_folder_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    blocked = tmp_path / "file"
    blocked.write_text("")
    with mirrored("offline", tmp_path, "s", blocked / "s", lambda: CELLS, said.append):
        pass
    assert len(said) == 1 and "replay" in said[0]
    assert "mirror.log" not in said[0], "there is none"
