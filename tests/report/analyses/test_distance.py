"""Agreement over a distance (docs/claims.md, 5): the planted sentences, and the page's table from the counts."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.distance import CLASSES, SENTENCES, VOWELS, planted, table
from lightning_tfm.config import Data
from lightning_tfm.data.builtin import Builtin

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pairs():
    return planted(Data(corpus="builtin", pairs=2700))


def test_every_class_has_its_sentences_of_which_none_is_in_train(pairs):
    assert len(pairs) == len({pair.source for pair in pairs}) == SENTENCES * len(CLASSES)
    for number, (least, most) in enumerate(CLASSES.values()):
        assert all(least <= p.distance <= most for p in pairs[number * SENTENCES : (number + 1) * SENTENCES])
    assert not {pair.source for pair in pairs} & {source for source, _ in Builtin(2700, 0).lines("train")}


def test_the_verb_alone_differs_and_what_lies_between_ends_in_another_vowel(pairs):
    for pair in pairs:
        right, *wrong = (line.split() for line in pair.targets())
        assert len(wrong) == len(VOWELS) - 1
        for line in wrong:
            assert [i for i, (a, b) in enumerate(zip(right, line, strict=True)) if a != b] == [pair.verb]
        vowel = pair.target[pair.verb][-2]
        head = pair.target[pair.verb - pair.distance] if pair.distance else ""
        if pair.distance:
            assert re.fullmatch(f"w{vowel}n", head), "a relative pronoun of the subject, in the accusative"
            assert pair.target[pair.verb - 1][-2] != vowel


def test_the_page_has_the_table_of_the_committed_counts():
    record = json.loads((ROOT / "experiments/results/claims/distance.json").read_bytes())
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    lines = {line["row"]: line for line in table(record)}
    assert {line["seeds"] for line in lines.values()} == {3} and record["sentences"] == SENTENCES
    for name, line in lines.items():
        cells = next(row for row in page.split("\n") if re.match(rf"\| {name} \| [^|]+ \|( [\d.]+ \|){{5}}", row))
        *numbers, beyond = (cell.strip() for cell in cells.strip("|").split("|")[2:])
        assert numbers == [f"{value:.1f}" for value in (*line["right"], line["fall"])]
        if name != "base":
            low, high = line["interval"]
            assert beyond == f"{line['extra']:+.1f} [{low:+.1f}, {high:+.1f}]"
    p = [line["p"] for line in lines.values() if "p" in line]
    assert min(p) == lines["L-near3"]["p"] == pytest.approx(0.065, abs=0.005)
