"""What is read of a study: status, readers, and how often `sweep` reads a file."""

import asyncio
import json
import os
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.show.status import as_text, short, with_labels
from lightning_tfm.dashboard.app import Dashboard
from lightning_tfm.dashboard.board import Board
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import JOURNAL, find_storage
from lightning_tfm.queue.studies import open_queue
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import to_plain
from lightning_tfm.study import expressions
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import apply
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.study import LOOKS
from lightning_tfm.study.study_file import link, load, save
from lightning_tfm.watch.study_state import Best, CellState, StudyState
from tests.helpers.launching import ablation
from tests.helpers.studies import FAR, Folder, leave, own_row, record, search
from tests.helpers.tiny import in_child, miniature


def status(root: Path, capsys, *argv: str) -> str:
    assert main(["status", *argv, "--out", str(root)]) == 0
    return str(capsys.readouterr().out)


def listed(root: Path, capsys) -> list[str]:
    return [" ".join(line.split()) for line in status(root, capsys).splitlines()]


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

    (head,) = status(tmp_path, capsys, "s").splitlines()
    assert head.startswith("s: 3 finished, 0 running, 0 waiting, 0 failed")
    for cell in cells[1:]:
        shutil.rmtree(RunFolder(tmp_path, cell.training_hash).path)
    head, line = status(tmp_path, capsys, "s").splitlines()
    assert head.startswith("s: 2 finished, 0 running, 1 waiting, 0 failed")
    assert line == "waiting  r1 seed 1  it was finished, but its folder is gone"
    found = json.loads(status(tmp_path, capsys, "s", "--json"))
    assert [cell["state"] for cell in found["cells"]] == ["finished", "waiting", "finished"]
    assert "1 waiting" in status(tmp_path, capsys, "s", "--watch")
    save(ablation("s"), tmp_path)
    (line,) = (line for line in listed(tmp_path, capsys) if line.startswith("s "))
    assert " 2 of 3 interrupted" in line, "as the study's own status has it"


def test_what_nobody_works_on_any_more_is_interrupted(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "studies" / "s"
    cells = [Cell(f"r{number}", 1, f"{number}".ljust(64, "0"), 1.0) for number in range(3)]
    save(ablation("s"), tmp_path)
    queue = Queue("s", find_storage("", folder))
    queue.enqueue(cells)
    in_child(lambda: Queue("s", find_storage("", folder)).claim().attempt)
    far = queue.claim()
    queue.mark(far, "owner", FAR)
    run = RunFolder(tmp_path, far.cell.training_hash)

    head, running, behind, _ = status(tmp_path, capsys, "s").splitlines()
    assert head.startswith("s: 0 finished, 1 running, 1 waiting, 0 failed, 1 interrupted")
    assert running.startswith("running  r1 seed 1 ") and "elsewhere" in running, "of its files nothing is here"
    assert behind.startswith("interrupted  r0 seed 1  process ") and behind.endswith(" is gone")
    run.attempts.mkdir(parents=True)
    heard = run.attempts / "0001.beat"
    heard.touch()
    (run.attempts / "0001.json").write_text(
        json.dumps({"number": 1, "token": "x", "owner": FAR, "time": 1.0, "ended": None})
    )
    assert "1 running" in status(tmp_path, capsys, "s")
    os.utime(heard, (1.0, 1.0))
    before = (folder / "journal.log").read_bytes(), sorted(run.path.rglob("*"))
    assert "0 running, 1 waiting, 0 failed, 2 interrupted" in status(tmp_path, capsys, "s")
    found = json.loads(status(tmp_path, capsys, "s", "--json"))
    assert [cell["state"] for cell in found["cells"]] == ["interrupted", "interrupted", "waiting"]
    assert found["share"] == 0 and listed(tmp_path, capsys)[1].startswith("s table 0 of 3 interrupted 20")
    assert before == ((folder / "journal.log").read_bytes(), sorted(run.path.rglob("*"))), "nothing is written"


def test_a_table_that_came_without_a_queue_is_told_from_its_records(tmp_path: Path, capsys) -> None:
    made = Folder(tmp_path)
    made.fill(made.table("whole", ["base", "A-h1"], [1, 2]))
    assert listed(tmp_path, capsys)[1].startswith("whole table 4 of 4 finished 20")
    made.table("more", ["base", "A-h1"], [1, 2, 3])
    assert status(tmp_path, capsys, "more").startswith("more: 4 finished, 0 running, 2 waiting, 0 failed, ")
    assert listed(tmp_path, capsys)[2].startswith("more table 4 of 6 interrupted 20")


def test_a_journal_that_was_cut_short_loses_no_cell_that_ran(tmp_path: Path, capsys) -> None:
    made = Folder(tmp_path)
    table = made.table("cut", ["base", "A-h1"], [1, 2, 3])
    made.fill(table)
    folder = tmp_path / "studies" / "cut"
    queue = Queue("cut", find_storage("", folder))
    queue.enqueue(table.cells())
    while claim := queue.claim():
        link(folder, claim.cell)
        assert queue.finish(claim, 2.0)

    before = status(tmp_path, capsys, "cut")
    assert before.startswith("cut: 6 finished, 0 running, 0 waiting, 0 failed, best: dev/ppl ")
    journal = folder / JOURNAL
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 5])
    assert len(open_queue(tmp_path, "cut", say=lambda text: None).states()) < 6
    assert status(tmp_path, capsys, "cut") == before


def test_a_search_whose_space_is_exhausted_has_ended(tmp_path: Path, capsys) -> None:
    """50 trials were asked for; the space has two points beside base."""
    rates = Parameter("training.lr_factor", "categorical", [0.3, 0.8])
    made = save(search(name="few", space=[rates], trials=50), tmp_path)
    queue = Queue("few", find_storage("", tmp_path / "studies" / "few"), budget=50)
    queue.enqueue([*made.cells(), *(made.cell(i, {rates.name: rate}) for i, rate in enumerate(rates.values))])
    while claim := queue.claim():
        attempt = RunFolder(tmp_path, claim.cell.training_hash).claim()
        leave(attempt, evaluation_hash=made.evaluation_of_text(made.prints.dev))
        attempt.release()
        assert queue.finish(claim, 2.0)
    assert listed(tmp_path, capsys)[1].startswith("few search 3 of 3 finished 20")


def test_a_run_whose_scores_are_damaged_is_not_counted_as_finished(tmp_path: Path, capsys) -> None:
    made = Folder(tmp_path)
    table = made.table("torn", ["base"], [1, 2, 3])
    made.fill(table)
    cell = table.cells()[0]
    scores = RunFolder(tmp_path, cell.training_hash).scores(table.evaluation(cell, tmp_path))
    (scores / "val.json").write_text('{"ppl": 1.5')
    head, line = status(tmp_path, capsys, "torn").splitlines()
    assert head.startswith("torn: 2 finished, 0 running, 0 waiting, 0 failed, 1 damaged")
    assert line.startswith("damaged  base seed 1  its record cannot be read: not valid JSON")
    assert main(["table", "torn", "--out", str(tmp_path), "--format", "json"]) == 0
    assert [row["n"] for row in json.loads(capsys.readouterr().out)["rows"]] == [2]


def test_a_study_has_ended_when_nothing_that_failed_will_be_tried_again(tmp_path: Path, capsys) -> None:
    made = Folder(tmp_path)
    study = made.table("t", ["base", "A-h1"], [1])
    queue = Queue("t", find_storage("", tmp_path / "studies" / "t"))
    queue.enqueue(study.cells())
    for cell in study.cells():
        made.run(apply(study.base, next(row for row in study.rows if row.name == cell.row), 1), "failed")
    states = []
    while claim := queue.claim():
        queue.fail(claim, "refused" if claim.cell.row == "base" else "out_of_memory", "it failed")
        states.append(listed(tmp_path, capsys)[1].split()[5])
        head, *lines = status(tmp_path, capsys, "t").splitlines()
        assert "2 failed" in head and [line.split()[0] for line in lines] == ["failed", "failed"]
        ahead = sum(state.state == "waiting" for state in queue.states())
        assert sum(line.endswith("; will be tried again") for line in lines) == ahead
    assert states[-1] == "failed" and set(states[:-1]) == {"interrupted"}


def test_cells_that_looks_never_asked_for_are_not_counted(tmp_path: Path, capsys) -> None:
    made = Folder(tmp_path)
    study = made.table("auto", ["base", "A-h1"], [1, 2, 3])
    seeds = {"base": [1, 2, 3], "A-h1": [1, 2]}
    write_looks(tmp_path, "auto", Course(late(2, 3), [Look(seeds)], None))
    queue = Queue("auto", find_storage("", tmp_path / "studies" / "auto"))
    queue.enqueue([study.cell(row, seed) for row in study.rows for seed in seeds[row.name]])
    while claim := queue.claim():
        made.run(study.experiment(claim.cell))
        assert queue.finish(claim, 2.0)
    assert listed(tmp_path, capsys)[1].startswith("auto table 5 of 5 finished 20")
    view = Board(tmp_path, every=0).look().studies["auto"]
    assert (view.total, view.state) == (5, "finished")
    write_looks(tmp_path, "auto", Course(late(2, 3), [], {"base": [1, 2, 3], "A-h1": [1, 2, 3]}))
    assert listed(tmp_path, capsys)[1].startswith("auto table 5 of 6 interrupted 20")
    view = Board(tmp_path, every=0).look().studies["auto"]
    assert (view.total, view.state) == (6, "interrupted")


def write_looks(root: Path, name: str, course: Course) -> None:
    (root / "studies" / name / LOOKS).write_text(json.dumps(looks_to_json(course)))


def test_without_a_study_the_studies_are_listed(tmp_path: Path, capsys) -> None:
    for words in ("no studies in", "lightning-tfm sweep sweeps/table3.yaml"):
        assert words in status(tmp_path, capsys)
    rows = [own_row(f"r{n}", {"model.h": 2**n} if n else {}) for n in range(3)]
    names = ("fresh", "half", "whole")
    tables = [save(replace(ablation(name), rows=rows, seeds=[i]), tmp_path) for i, name in enumerate(names, 1)]
    (tmp_path / "studies" / "torn").mkdir()
    (tmp_path / "studies" / "torn" / "study.json").write_text("{")
    for table, count in zip(tables[1:], (1, 3), strict=True):
        queue = Queue(table.name, find_storage("", tmp_path / "studies" / table.name))
        queue.enqueue(table.cells())
        for _ in range(count):
            claim = queue.claim()
            scored = load(tmp_path, table.name).evaluation(claim.cell, tmp_path)
            leave(RunFolder(tmp_path, claim.cell.training_hash).claim(), evaluation_hash=scored)
            assert queue.finish(claim, 2.0)
    found = {line.split()[0]: " ".join(line.split()) for line in status(tmp_path, capsys).splitlines()}
    assert found["fresh"].startswith("fresh table 0 of 3 waiting 20")
    assert found["half"].startswith("half table 1 of 3 interrupted 20")
    assert found["whole"].startswith("whole table 3 of 3 finished 20")
    assert "0 of 0 unknown" in found["torn"] and "not a study definition" in found["torn"]
    listed = {study["name"]: study for study in json.loads(status(tmp_path, capsys, "--json"))}
    assert listed["whole"]["counts"] == {"finished": 3} and listed["half"]["state"] == "interrupted"
    on_page = Board(tmp_path, every=0).look().studies
    assert all(on_page[name].state == listed[name]["state"] for name in names), "the dashboard says the same"


def test_nothing_is_wider_than_the_terminal_and_other_programs_read_whole_lines(tmp_path, capsys, monkeypatch):
    made = Folder(tmp_path)
    study = made.table("table-of-a-long-name", None, [1, 2])
    made.fill(study, ["finished", "interrupted", "stopped early"])
    queue = Queue(study.name, find_storage("", tmp_path / "studies" / study.name))
    queue.enqueue(study.cells())
    for cell in study.cells():
        link(tmp_path / "studies" / study.name, cell)

    def said(*argv: str) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        assert main([*argv]) == 0
        return capsys.readouterr().out.splitlines()

    monkeypatch.setenv("COLUMNS", "80")
    out = ("--out", str(tmp_path))
    for argv in (("status", study.name, *out), ("status", *out), ("runs", "list", *out), ("doctor",)):
        terminal = True
        lines = said(*argv)
        assert max(map(len, lines)) <= 80, argv
        terminal = False
        whole = said(*argv)
        assert " ".join(lines).split() == " ".join(whole).split(), "the same words"
    assert said("status", study.name, *out)[-1].startswith("waiting  A-h1/1, A-h4/2, ")
    assert len(said("status", study.name, *out)[-1]) > 80


def test_rows_go_by_their_labels_with_their_codes_beside_them():
    cells = [CellState(Cell("A-h1", seed, "0" * 64, 1.0), state, "out of memory") for seed, state in ((1, "failed"),)]
    cells.append(CellState(Cell("A-h1", 2, "1" * 64, 1.0), "waiting"))
    found = StudyState("made", cells=cells, best=Best("A-h1", None, "dev/ppl", 2.5))
    head, failed, waiting = as_text("made", with_labels(found, {"A-h1": "one head"})).splitlines()
    assert head.endswith("best: dev/ppl 2.5 (one head (A-h1))") and waiting == "waiting  A-h1/2"
    assert failed == "failed   one head (A-h1) seed 1  out of memory"


def test_waiting_cells_of_combined_fields_are_named_by_their_values():
    assert short("norm=pre, warmup=150, lr_factor=0.35") == "pre·150·0.35"
    assert short("A-h1, warmup=150") == "A-h1·150" and short("A-h1") == "A-h1"


ARCHIVES = Path(__file__).parents[1] / "archives"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def written_by(folder: Path, act: Callable[[], int]) -> tuple[int, list[str]]:
    """The exit code of `act` in `folder`, and what below folder/results it opened for writing or changed.

    root may write wherever the modes forbid it: the interpreter's own events are the test.
    """
    results, found = os.path.realpath(folder / "results"), []

    def listen(event: str, args: tuple) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.rmdir", "os.truncate")
        writes = event == "open" and (set(str(args[1] or "")) & set("wax+") or args[2] & WRITES)
        if (changes or writes) and isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(args[0]))
            if path.startswith(results) and not (event == "os.mkdir" and os.path.isdir(path)):
                found.append(f"{event} {path}")

    def call() -> tuple[int, list[str]]:
        os.chdir(folder)
        sys.addaudithook(listen)
        return act(), found

    return in_child(call)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("readers")
    for name in ("packed", "several"):
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(root, filter="data")
    return root


@pytest.mark.parametrize(
    "line",
    [
        "status", "status packed", "status packed --json", "status several", "table packed", "plan packed.yaml",
        "table packed --format csv", "report packed --format markdown", "report several --format json", "runs list",
        "runs query ppl<99", "compare packed packed",
    ],
)  # fmt: skip
def test_a_reader_opens_nothing_for_writing(folder: Path, line: str) -> None:
    code, found = written_by(folder, lambda: main(line.split()))
    assert found == [] and (code == 0 or line.startswith("compare"))


def test_the_dashboard_opens_nothing_for_writing(folder: Path) -> None:
    pages = ("/", "/runs", "/study/packed", "/study/several", "/study/packed/news")

    def serve() -> int:
        app = Dashboard(Board(Path("results"), cache=folder / "cache")).app()
        answers: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request"}

        async def send(message: dict) -> None:
            answers.append(message)

        for path in pages:
            scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": ""}
            asyncio.run(app(scope | {"headers": [(b"host", b"127.0.0.1")]}, receive, send))
        return [message["status"] for message in answers if "status" in message].count(200)

    assert written_by(folder, serve) == (len(pages), [])


def test_a_command_that_writes_is_seen(folder: Path) -> None:
    code, found = written_by(folder, lambda: main(["report", "packed"]))
    assert code == 0 and any("report.html" in text for text in found)


SWEEP = """name: traced
method: grid
parameters:
  row: {values: [base, A-h1, E-learned]}
command: [lightning-tfm, fit, "${args}"]
"""


def traced(sweep: Path, root: Path, *arguments: str) -> tuple[int, Counter, Counter]:
    """The exit code of `sweep`; how often its process, its report included, read each file that was there, and laid
    each row on a base."""
    read, laid, launcher = Counter[str](), Counter[str](), [os.getpid()]
    with_numbers = expressions.with_numbers

    def listen(event: str, args: tuple) -> None:
        if event == "open" and [os.getpid()] == launcher and isinstance(args[0], (str, os.PathLike)):
            path = Path(args[0]).absolute()
            if path.is_file() and not args[2] & (os.O_WRONLY | os.O_RDWR):
                read[str(path.relative_to(root) if path.is_relative_to(root) else path.name)] += 1

    def counted(base, change, where):
        laid[where] += [os.getpid()] == launcher
        return with_numbers(base, change, where)

    expressions.with_numbers = counted
    sys.addaudithook(listen)
    return main(["sweep", str(sweep), *arguments]), read, laid


def test_a_sweep_reads_its_file_once_and_a_record_twice_and_lays_each_row_on_base_once(tmp_path: Path) -> None:
    (sweep := tmp_path / "traced.yaml").write_text(SWEEP)
    steps = ["--training.steps=30", "--trainer.validate_every=10"]
    arguments = [*miniature(tmp_path), *steps, "--workers=2", f"--out={tmp_path / 'out'}"]
    for before in (0, 2):  # the same command again asks which rows are hidden, and what the study is joined with
        code, read, laid = in_child(lambda: traced(sweep, tmp_path, *arguments))
        assert code == 0
        assert read["traced.yaml"] == read["table3.yaml"] == 1
        assert read["out/studies/traced/study.json"] == before + 1, "for the rows that somebody else may have added"
        records = {path: times for path, times in read.items() if path.endswith("result.json")}
        assert len(records) == 3 and set(records.values()) == {2}, "the pool with its view, and the reports"
        assert [times for where, times in laid.items() if "'A-h1'" in where] == [1] and set(laid.values()) == {1}
