"""optuna-dashboard opens a study's journal as it lies there, looked at in a headless browser."""

import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from lightning_tfm.runs.process.attempt import Task
from lightning_tfm.study.rows import Paper, Row
from tests.helpers.browser import chromium
from tests.helpers.launching import ablation, launch
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for

PARAMETERS = {"row": "r3", "seed": "21", r"model\.h": "8"}
"""of trial 3"""


def program() -> str:
    """The path of optuna-dashboard: $OPTUNA_DASHBOARD, beside our interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("optuna-dashboard")
    found = os.environ.get("OPTUNA_DASHBOARD") or (str(beside) if beside.exists() else shutil.which("optuna-dashboard"))
    if not found:
        warnings.warn("NOT TESTED: optuna-dashboard is not installed", stacklevel=1)
        pytest.skip("pip install optuna-dashboard, in an environment of its own; then OPTUNA_DASHBOARD=its path")
    return found


def train(task: Task) -> None:
    value = 2.0 + int(task.cell.row[1:])  # r0 to r3
    leave(task.attempt, ppl=value)


@pytest.mark.long
def test_the_dashboard_shows_a_study_and_its_trials(tmp_path: Path) -> None:
    dashboard = program()
    paper = Paper(None, None, None)
    rows = [Row(f"r{i}", "r", {"model.h": 2**i} if i else {}, paper, "here:1") for i in range(4)]
    table = replace(ablation("watched"), rows=rows, seeds=[21])
    with (tmp_path / "shown").open("w") as stream:
        launch(table, table.cells(), tmp_path, train, stream=stream)
    journal = tmp_path / "studies" / "watched" / "journal.log"
    before = journal.read_bytes()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([dashboard, str(journal), "--port", str(port)], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}/dashboard"
        _wait_for(address, server, tmp_path / "log")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page()
            page.route(lambda url: "127.0.0.1" not in url, lambda route: route.abort())
            page.set_default_timeout(30_000)
            page.goto(address, wait_until="domcontentloaded")
            page.get_by_text("watched").first.click()
            page.goto(page.url.split("?")[0] + "/trials", wait_until="domcontentloaded")
            page.get_by_text("Trial 3").first.wait_for()
            text = page.inner_text("body")
            page.get_by_text("Trial 3").first.click()
            page.get_by_text("model.h").first.wait_for()
            shown = page.inner_text("body")
            browser.close()
        assert "Trial 0" in text and "Complete" in text
        assert all(re.search(rf"{key}\W+{value}\b", shown) for key, value in PARAMETERS.items()), shown
        assert journal.read_bytes() == before, "looking changes nothing"
    finally:
        server.terminate()
        server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    wait_for(answers, 60, log.read_text, pause=0.3)
