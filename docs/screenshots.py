"""The pictures of the dashboard in these pages: `python docs/screenshots.py [FOLDER]`, from a clone with Chromium.

They show a folder that nobody trained (tests/dashboard/made.py), always the same one but for its times.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SIZE = {"width": 1280, "height": 680}


def shoot(folder: Path) -> list[Path]:
    """Write index, run and diff below `folder`, light, 1280 wide; the files."""
    from tests.browser import chromium
    from tests.dashboard.made import thousand

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "results"
        thousand(root, 250)
        call = [sys.executable, "-m", "lightning_tfm.cli.main", "dashboard", "--out", "results", "--port", "0"]
        server = subprocess.Popen(
            call, cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0].rstrip("/")
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
                page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
                return [_shot(page, address, name, folder) for name in ("index", "run", "diff")]
        finally:
            server.terminate()
            server.wait()


def _shot(page, address: str, name: str, folder: Path) -> Path:
    page.goto(f"{address}/?study=table-01")
    running = page.locator("#table-runs tbody tr[data-state=running] th a").first.get_attribute("href")
    done = page.locator("#table-runs tbody tr[data-state=finished] input").evaluate_all("all => all.map(i => i.value)")
    paths = {"index": "/", "run": running, "diff": f"/diff?run={done[0]}&run={done[-1]}"}
    page.goto(address + paths[name])
    page.wait_for_timeout(1500)
    path = folder / f"dashboard-{name}.png"
    page.screenshot(path=path)
    return path


if __name__ == "__main__":
    for path in shoot(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"):
        print(f"{path} {path.stat().st_size:,} bytes")
