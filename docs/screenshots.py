"""The pictures of the documents: pages of the committed miniature and of the demo, photographed by a headless Chromium.

    python docs/screenshots.py [--results FOLDER]

It unpacks experiments/results/miniature-8-epochs/records.tar.xz, runs `lightning-tfm demo` and `dashboard` in a folder
of its own (or in FOLDER, to keep it), and writes docs/_static/screens/*.png and the PNG files beside those records.
Chromium is $CHROMIUM, or found on the PATH.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SCREENS = ROOT / "docs" / "_static" / "screens"
RECORDS = ROOT / "experiments" / "results" / "miniature-8-epochs" / "records.tar.xz"


@dataclass(frozen=True)
class Shot:
    """One picture. In `path`, BASE and OTHER are the runs of base and C-N2 at seed 61, DEMO the demo's."""

    name: str
    path: str
    width: int = 1280
    height: int = 800
    dark: bool = False
    section: str = ""
    """of a report, alone, without what can be pressed in it; in more pixels, beside the records"""


SHOTS = (
    Shot("dashboard", "/"),
    Shot("study", "/study/table3-8-epochs", height=1000),
    Shot("run", "/run/DEMO", height=1100),
    Shot("compare", "/diff?run=BASE&run=OTHER", height=1000, dark=True),
    Shot("report", "/study/table3-8-epochs/report", height=1000),
    Shot("report-narrow", "/study/table3-8-epochs/report", width=400, height=900),
)


REPORT = "/study/table3-8-epochs/report"
PARTS = (
    *(Shot(f"{name}-light", REPORT, section=name) for name in ("agreement", "table")),
    Shot("agreement-dark", REPORT, section="agreement", dark=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, help="keep the results there, and use what is there already")
    asked = parser.parse_args().results
    with tempfile.TemporaryDirectory() as temporary:
        results = (asked or Path(temporary) / "results").resolve()
        if not (results / "studies" / "table3-8-epochs").is_dir():
            subprocess.run(verb(results, "records", "unpack", str(RECORDS)), env=OURS, check=True)
        subprocess.run(verb(results, "demo"), env=OURS, check=True)
        photograph(results)
    return 0


OURS = os.environ | {"PYTHONPATH": str(ROOT)}


def verb(results: Path, *arguments: str) -> list[str]:
    """The command of one of our verbs, to run beside `results`."""
    return [sys.executable, "-m", "lightning_tfm.cli.main", *arguments, "--out", str(results)]


def photograph(results: Path) -> None:
    """Write every picture."""
    runs = {word: run_of(results, *cell) for word, cell in CELLS.items()}
    SCREENS.mkdir(parents=True, exist_ok=True)
    with serving(results) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for shot in (*SHOTS, *PARTS):
            path = shot.path
            for word, run in runs.items():
                path = path.replace(word, run)
            take(browser, address + path, shot)
        for dark in (False, True):
            draw(browser, results, dark)
        browser.close()


def draw(browser: Browser, results: Path, dark: bool) -> None:
    """The main figure with its sentences, alone."""
    from lightning_tfm.report.charts.forest_picture import wide
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.pages.document import source
    from lightning_tfm.report.study_report import make

    figure = wide(forest_of(make("table3-8-epochs", results).summary), titled=True)
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": 1032, "height": 800}, color_scheme=scheme, device_scale_factor=2)
    page.set_content(
        f"<style>{source('report.css')}{source('pictures.css')}</style><figure class=forest>{figure}</figure>"
    )
    path = RECORDS.parent / f"forest-{scheme}.png"
    page.locator("figure").screenshot(path=path)
    page.close()
    print(path)


CELLS = {"BASE": ("table3-8-epochs", "base", 61), "OTHER": ("table3-8-epochs", "C-N2", 61), "DEMO": ("demo", "base", 1)}


def run_of(results: Path, study: str, row: str, seed: int) -> str:
    """Name of the run of a cell."""
    found = results / "studies" / study / "cells" / row / f"{seed}.json"
    if found.is_file():
        return str(json.loads(found.read_bytes())["training_hash"][:16])
    from lightning_tfm.study.study import Ablation
    from lightning_tfm.study.study_file import load_as

    cells = load_as(Ablation, results, study).cells()  # unpacked records have no links
    return next(cell.training_hash[:16] for cell in cells if (cell.row, cell.seed) == (row, seed))


def take(browser: Browser, address: str, shot: Shot) -> None:
    """Write one picture."""
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
        device_scale_factor=1.5 if shot.section else 1,
    )
    answer = page.goto(address, wait_until="load")
    assert answer is not None and answer.ok, f"{address}: {answer and answer.status}"
    if page.locator("#forest").count():
        page.locator("#forest svg").first.wait_for()  # its verdicts take seconds
    page.wait_for_timeout(1500)  # for what the page draws by itself
    path = (RECORDS.parent if shot.section else SCREENS) / f"{shot.name}.png"
    if shot.section:
        page.add_style_tag(content=".tools, .controls, .chooser, .publish { display: none !important }")
        page.locator(f"#section-{shot.section}").screenshot(path=path)
    else:
        page.screenshot(path=path)
    page.close()
    print(path)


@contextmanager
def serving(results: Path) -> Iterator[str]:
    """Address of a dashboard over `results`, while the block runs."""
    command = verb(Path(results.name), "dashboard", "--port", "0")  # relative: pages show it
    server = subprocess.Popen(command, cwd=results.parent, env=OURS, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0].rstrip("/")
    finally:
        server.terminate()
        server.wait()


def chromium() -> str:
    """The path of Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        sys.exit("Chromium is missing: install it, or say where it is by CHROMIUM=/path/to/it")
    return found


if __name__ == "__main__":
    sys.exit(main())
