"""SCAN's grammar against the sizes and pairs that its authors print (Lake and Baroni 2018)."""

from collections import Counter

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.sources.files import corpus_fingerprint, make_corpus
from lightning_tfm.data.sources.scan import commands, phrases
from lightning_tfm.testing import CorpusSuite

SIZES = {
    "simple-train": 16728,
    "simple-test": 4182,
    "length-train": 16990,
    "length-test": 3920,
    "jump-train": 14670,
    "jump-test": 7706,
}


class TestScan(CorpusSuite):
    corpus = "scan"
    data = Data(train="simple-train", dev="simple-test", test="", vocab_size=60)

    def test_the_fingerprint_follows_the_text(self):
        """No setting changes what a grammar makes."""
        assert len({corpus_fingerprint(self._make(), split) for split in SIZES}) == len(SIZES)


@pytest.fixture(scope="module")
def splits() -> dict[str, list[tuple[str, str]]]:
    corpus = make_corpus(Data(corpus="scan"))
    return {split: list(corpus.lines(split)) for split in SIZES}


def test_all_commands_are_there_once():
    every = dict(commands())
    assert len(list(commands())) == len(every) == 20910 and len(dict(phrases())) == 34


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("jump", "JUMP"),
        ("jump left", "LTURN JUMP"),
        ("jump around right", "RTURN JUMP RTURN JUMP RTURN JUMP RTURN JUMP"),
        ("turn left twice", "LTURN LTURN"),
        ("jump thrice", "JUMP JUMP JUMP"),
        ("jump opposite left and walk thrice", "LTURN LTURN JUMP WALK WALK WALK"),
        ("jump opposite left after walk around left", "LTURN WALK LTURN WALK LTURN WALK LTURN WALK LTURN LTURN JUMP"),
    ],
)
def test_the_pairs_of_figure_1(command, actions):
    assert " ".join(dict(commands())[command]) == actions


def test_the_splits_have_their_authors_sizes(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == SIZES
    actions = {split: [line.count(" ") + 1 for _, line in pairs] for split, pairs in splits.items()}
    assert max(actions["length-train"]) == 22 and {min(actions["length-test"]), max(actions["length-test"])} == {24, 48}
    assert Counter(said for said, _ in splits["jump-train"] if "jump" in said) == {"jump": 1467}
    assert all("jump" in said and said != "jump" for said, _ in splits["jump-test"])
    for kind in ("simple", "length", "jump"):
        assert not {*splits[f"{kind}-train"]} & {*splits[f"{kind}-test"]}
