"""Commands that are printed as what to type next find the results that they speak of."""

import re
from pathlib import Path

import pytest

import lightning_tfm
from lightning_tfm.study.command import with_out

PACKAGE = Path(lightning_tfm.__file__).parent
OF_RESULTS = "status|table|report|resume|dashboard|demo|runs list|study hide|study show|wandb replay"


@pytest.mark.parametrize(
    ("root", "command"),
    [
        ("results", "lightning-tfm table mine"),
        (Path("results"), "lightning-tfm table mine"),
        ("my results", "lightning-tfm table mine --out 'my results'"),
        (Path("/there/results"), "lightning-tfm table mine --out /there/results"),
    ],
)
def test_a_place_is_named_where_it_is_not_the_default(root, command):
    assert with_out("lightning-tfm table mine", root) == command


@pytest.mark.parametrize("path", sorted(p for room in ("cli", "queue") for p in (PACKAGE / room).rglob("*.py")))
def test_no_verb_prints_a_command_that_would_look_elsewhere(path):
    """Of a run's own folder, or of a word that the reader is to fill in, there is nothing to add."""
    found = re.compile(
        rf"f[\"'].*lightning-tfm (?:{OF_RESULTS})\b(?! STUDY)[^\"']*\{{(?!folder|target or group)"
    ).search
    said = [line.strip() for line in path.read_text().splitlines() if found(line) and "with_out(" not in line]
    assert said == []
