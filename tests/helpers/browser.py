"""A real browser for the tests that look at pages."""

import os
import shutil
import warnings

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The path of Chromium: $CHROMIUM or on the PATH. Without it the test skips, loudly."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        warnings.warn("NO PAGE WAS TESTED IN A BROWSER: chromium is missing", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium, or CHROMIUM=/path/to/it")
    return found
