"""Numbers with their nouns, and that the package counts with them where one is possible."""

import re
from pathlib import Path

import pytest

import lightning_tfm
from lightning_tfm.plural_words import plural

PACKAGE = Path(lightning_tfm.__file__).parent


@pytest.mark.parametrize(("n", "said"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (10_000, "10,000 runs")])
def test_one_is_singular(n, said):
    assert plural(n, "run") == said


def test_no_verb_counts_runs_threads_or_devices_without_their_number():
    """Where one is possible."""
    counts = re.compile(
        r"\{[^{}]*(?:len\(|count|runs|devices|get_num_threads)[^{}]*\} (?:runs|threads|devices|files)\b"
    )
    found = [
        line.strip()
        for path in (PACKAGE / "cli").glob("*.py")
        for line in path.read_text().splitlines()
        if counts.search(line)
    ]
    assert found == []
