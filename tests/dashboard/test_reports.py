"""Reports in the dashboard: made once for each state of the records; the commands that serve it."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.reports import OWN, Reports
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import JOURNAL, JournalStore
from lightning_tfm.study.study import LOOKS
from tests.golden.synthetic import grid
from tests.helpers.studies import (
    Generator,
    write_search,
)

ROOT = Path(__file__).resolve().parents[2]
FIELDS = 'aria-label="The effect of each field"'


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("r"), ["base", "A-h1"], [1, 2])
    found.write_all(skip=[("A-h1", 2)])
    return found


def test_a_report_is_made_once_for_each_state_of_the_records(tested, monkeypatch):
    assert LOOKS in OWN
    reports, asked = Reports(tested.root), []
    monkeypatch.setattr(Reports, "_report", lambda self, name, reference, now: asked.append(now) or f"page {now}")
    first = reports.version("made")
    assert reports.page("made") == reports.page("made") == f"page {first}"
    tested.write(tested.study.rows[1], 2, 0.1)
    second = reports.version("made")
    assert second != first and reports.page("made") == f"page {second}"
    assert asked == [first, second]


def test_a_study_s_page_begins_with_its_main_figure_in_the_version_of_its_records(serve, tested):
    served = serve(tested.root)
    page = served.get("/study/made").text
    assert page.index('data-of="/study/made/forest"') < page.index('id="part-head"') < page.index('id="part-cells"')
    answer, now = served.get("/study/made/forest"), served.get("/study/made/report/version").text
    assert answer.text.startswith("<p><strong>") and answer.text.count("<svg") == 2 and "one head" in answer.text
    assert served.get("/study/made/forest", If_None_Match=f'"{now}"').status == 304
    assert served.get("/study/none/forest").status == 404


def test_pictures_of_an_analysis_that_asks_for_it_follow_the_main_figure(serve, tmp_path):
    grid(tmp_path, [1, 2])
    page = serve(tmp_path).get("/study/made/forest").text
    own, _, further = page.partition(FIELDS)
    assert further and own.startswith("<p><strong>") and "<figure>" in page and "<table" not in page


def test_a_report_asks_beside_itself_for_a_newer_version(serve, tested):
    served = serve(tested.root)
    answer = served.get("/study/made/report")
    now = served.get("/study/made/report/version").text
    assert f'data-live="1" data-version="{now}"' in answer.text and "connect-src 'self'" in answer.text
    assert "location.pathname" in answer.text
    assert "A-h1" in served.get("/study/made/report?reference=A-h1").text
    assert served.get("/study/made/report?reference=none").status == 503
    assert served.get("/study/made/report", If_None_Match=f'"{now}"').status == 304
    policy = answer.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy and "frame-ancestors 'none'" in policy


def test_a_search_is_reported_from_its_journal_without_a_lock_or_a_file(serve, tmp_path):
    search = write_search(tmp_path, 12)
    folder = tmp_path / "studies" / "found"
    Queue("found", JournalStore(folder / JOURNAL), directions=["minimize", "minimize"])
    for path in (
        folder / "trials.json",
        folder / "importance.json",
        *folder.glob("*.flock"),
        *folder.glob("*.exclusive"),
    ):
        path.unlink()
    with (folder / JOURNAL).open("a") as file:
        file.write('{"op_code": 4, "half')  # a worker is writing it
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    answer = serve(tmp_path).get("/study/found/report")
    assert answer.status == 200 and "No finished trial" in answer.text and search.name in answer.text
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_search_without_its_journal_is_shown_from_its_trials(serve, tmp_path):
    write_search(tmp_path, 12)
    served = serve(tmp_path)
    assert "t0007" in served.get("/study/found/report").text
    (tmp_path / "studies/found/trials.json").write_text("{")
    answer = served.get("/study/found/report")
    assert answer.status == 503 and "not a record of a search" in answer.text


def test_report_serve_names_the_address_of_the_report_and_ends_on_ctrl_c(tested, capsys):
    argv = ["report", "made", "--serve", "--out", str(tested.root), "--port"]
    served = subprocess.Popen(
        [sys.executable, "-m", "lightning_tfm.cli.main", *argv, "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        address = served.stdout.readline().split()[0]
        home, path = address.split("/study/")
        assert path == "made/report"
        with urllib.request.urlopen(f"{home}/study/made", timeout=240) as answer:
            assert b"Full report" in answer.read()
        port = home.rpartition(":")[2]
        assert main(["dashboard", "--out", str(tested.root), "--port", port]) == 2
        assert f"--port={port}: Address already in use" in capsys.readouterr().err
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 130
    finally:
        served.kill()
        served.wait()
        served.stdout.close()


@pytest.mark.parametrize(
    ("argv", "words"),
    [(["--port", "70000"], "--port=70000: a port is between"), (["--out", "nowhere"], "--out=nowhere: no such folder")],
)
def test_a_mistake_is_named(tested, argv, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert main(["dashboard", *argv]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.long
def test_studies_are_compared_with_tests(serve, tested):
    other = Generator(tested.root, ["base", "A-h1"], [3, 4], "other")
    other.write_all()
    answer = serve(tested.root).get("/compare?study=made&study=other")
    assert answer.status == 200 and "other" in answer.text
