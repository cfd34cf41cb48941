"""A PostgreSQL storage beside the folder: studies of other machines, their records; read only, and patient."""

import json
from dataclasses import replace

import pytest
from optuna.exceptions import StorageInternalError

from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.storage import Database
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.sharing import publish
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs.record import to_plain
from lightning_tfm.study.rows import apply
from lightning_tfm.study.study import load
from tests.dashboard.made import BASE, PRINTS, Folder, V
from tests.records import record_of

pytestmark = pytest.mark.long


@pytest.fixture
def filled(postgres, tmp_path):
    """A study of four cells: one finished elsewhere with its record, one running, one waiting, one finished here."""
    made = Folder(tmp_path / "there")
    study = made.table("table", ["base", "A-h1"], seeds=[1, 2])
    queue = Queue("table", find_storage(postgres.url, tmp_path))
    folder = tmp_path / "there" / "studies" / "table"
    publish(queue, folder, study.to_plain())
    queue.enqueue(study.cells())
    claim = queue.claim()
    assert claim is not None
    record = record_of(study.experiment(claim.cell), PRINTS, V, ppl=3.25)
    queue.mark(claim, "record", json.loads(json.dumps(to_plain(record))))
    queue.finish(claim, 3.25)
    going = queue.claim()
    assert going is not None
    return made, study, claim, going


def test_studies_of_other_machines_are_shown_with_their_records_and_nothing_is_written(
    postgres, filled, tmp_path, serve
):
    _, study, claim, going = filled
    here = tmp_path / "here"
    here.mkdir()
    import psycopg

    def rows() -> list:
        with psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
            tables = [r[0] for r in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
            return [sorted(map(str, connection.execute(f"SELECT * FROM {name}"))) for name in sorted(tables)]

    before = rows()
    database = Database(postgres.url, every=0)
    served = serve(here, elsewhere=database)
    seen = served.board.look()
    view = seen.studies["table"]
    assert view.total == 4 and view.counts == {"finished": 1, "running": 1, "waiting": 2, "failed": 0}
    assert seen.runs[claim.cell.training_hash[:16]].ppl == 3.25
    assert seen.runs[going.cell.training_hash[:16]].state == "running"
    page = served.get(f"/run/{claim.cell.training_hash[:16]}").text
    assert "3.25" in page and "lightning-tfm fit" in page and study.name in page
    for path in ("/", "/study/table", "/study/table/news", f"/run/{going.cell.training_hash[:16]}"):
        assert served.get(path).status == 200
    assert served.get("/study/table/report").status == 503  # its files are not here
    assert rows() == before and list(here.iterdir()) == []
    with pytest.raises(StorageInternalError) as refused:
        database._storage.create_new_study([], "mine")
    assert "read-only transaction" in str(refused.value.__cause__)


def test_files_know_more_unless_the_run_went_on_elsewhere(postgres, filled):
    made, study, claim, _ = filled
    board = Board(made.root, Database(postgres.url, every=0), every=0)
    other = study.cells()[3]
    folder = made.run(apply(study.base, study.rows[1], 2), "running")
    stale = made.run(study.experiment(claim.cell), "interrupted")
    seen = board.look()
    assert seen.runs[folder.path.name].state == "running" and other.training_hash.startswith(folder.path.name)
    assert seen.runs[stale.path.name].state == "finished" and load(made.root, "table").name == "table"
    made.run(replace(BASE, training=replace(BASE.training, seed=50)))
    assert len(board.look().runs) == len(seen.runs) + 1


def test_while_the_storage_is_away_what_it_said_stays_with_a_note(postgres, filled, tmp_path, monkeypatch):
    database = Database(postgres.url, every=0)
    board = Board(tmp_path / "none", database, every=0)
    assert board.look().notes == () and board.look().studies
    postgres.control("stop")
    try:
        seen = board.look()
        assert "does not answer" in seen.notes[0] and seen.studies["table"].total == 4
    finally:
        postgres.control("start")
    assert board.look().notes == ()
