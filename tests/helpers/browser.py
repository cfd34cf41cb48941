"""A real browser for the tests that look at pages."""

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def chromium() -> str:
    """The path of Chromium: $CHROMIUM or on the PATH. Without it the test skips, loudly."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        warnings.warn("NO PAGE WAS TESTED IN A BROWSER: chromium is missing", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium, or CHROMIUM=/path/to/it")
    return found


def in_page(name: str) -> str:
    """A function for `evaluate`, from in_page/<name>.js, whose first line says what it returns."""
    return (Path(__file__).parent / "in_page" / f"{name}.js").read_text(encoding="utf-8").partition("\n")[2]


def axe_violations(page: Any, *rules: str) -> list[str]:
    """What axe finds to mend; it must have looked at colours, regions and `rules`."""
    from axe_playwright_python.sync_playwright import Axe

    asked = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations", "passes"]}
    answer = Axe().run(page, options=asked).response
    assert {"color-contrast", "region", *rules} <= {rule["id"] for rule in answer["passes"]}
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]} ({len(v['nodes'])})" for v in answer["violations"]]
