"""`status`: what the queue says, held against the runs that are there."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from lightning_tfm.cli.main import main
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import to_plain
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Paper, Row
from lightning_tfm.study.study import save
from tests.launching import ablation
from tests.records import leave, record


def test_a_finished_run_whose_folder_is_gone_is_not_counted_as_done(tmp_path: Path, capsys) -> None:
    cells = [Cell(f"r{number}", 1, f"{number}".ljust(64, "0"), 1.0) for number in range(3)]
    queue = Queue("s", find_storage("", tmp_path / "studies" / "s"))
    queue.enqueue(cells)
    while claim := queue.claim():
        attempt = RunFolder(tmp_path, claim.cell.training_hash).claim()
        leave(attempt)
        attempt.release()
        if claim.cell.row == "r2":  # its record travels through the storage
            queue.mark(claim, "record", to_plain(record()))
        assert queue.finish(claim, 2.0)

    def status(*more: str) -> str:
        assert main(["status", "s", "--out", str(tmp_path), *more]) == 0
        return capsys.readouterr().out

    (head,) = status().splitlines()
    assert head.startswith("s: 3 finished, 0 running, 0 waiting, 0 failed") and "gone" not in head
    for cell in cells[1:]:
        shutil.rmtree(RunFolder(tmp_path, cell.training_hash).path)
    head, line = status().splitlines()
    assert head.startswith("s: 2 finished, 0 running, 0 waiting, 0 failed, 1 gone")
    assert line.startswith("gone     r1 seed 1  its folder below")
    found = json.loads(status("--json"))
    assert [cell["state"] for cell in found["cells"]] == ["finished", "gone", "finished"]
    assert "1 gone" in status("--watch")


def test_without_a_study_the_studies_are_listed(tmp_path: Path, capsys) -> None:
    def said(*more: str) -> str:
        assert main(["status", "--out", str(tmp_path), *more]) == 0
        return capsys.readouterr().out

    assert "no studies in" in said() and "lightning-tfm sweep sweeps/table3.yaml" in said()
    rows = [Row(f"r{n}", "r", {"model.h": 2**n} if n else {}, Paper(None, None, None), "here:1") for n in range(3)]
    tables = [save(replace(ablation(name), rows=rows, seeds=[1]), tmp_path) for name in ("fresh", "half", "whole")]
    (tmp_path / "studies" / "torn").mkdir()
    (tmp_path / "studies" / "torn" / "study.json").write_text("{")
    for table, count in zip(tables[1:], (1, 3), strict=True):
        queue = Queue(table.name, find_storage("", tmp_path / "studies" / table.name))
        queue.enqueue(table.cells())
        for _ in range(count):
            assert queue.finish(queue.claim(), 2.0)
    found = {line.split()[0]: " ".join(line.split()) for line in said().splitlines()}
    assert found["fresh"].startswith("fresh table 0 of 3 not started 20")
    assert found["half"].startswith("half table 1 of 3 interrupted 20")
    assert found["whole"].startswith("whole table 3 of 3 ended 20")
    assert "0 of 0 unknown" in found["torn"] and "not a study definition" in found["torn"]
    listed = {study["name"]: study for study in json.loads(said("--json"))}
    assert listed["whole"]["counts"] == {"finished": 3} and listed["half"]["state"] == "interrupted"
