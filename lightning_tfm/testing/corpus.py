"""What must hold for every corpus. Every check reads the whole text: of a large corpus, give the suite a small part."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from unittest import SkipTest

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import corpus_fingerprint, make_corpus
from lightning_tfm.data.text.cleaning import flaw
from lightning_tfm.errors import UserError


def read(data: Data) -> dict[str, tuple[str, str]]:
    """Split -> sha256 of its text and its fingerprint, by a newly made corpus."""
    corpus = make_corpus(data)
    return {split: (_digest(corpus.lines(split)), corpus_fingerprint(corpus, split)) for split in splits(data)}


def splits(data: Data) -> list[str]:
    """The splits that `data` names: the parts of the training text, dev, and test where there is one."""
    return [*data.train.split("+"), *(split for split in (data.dev, data.test) if split)]


class CorpusSuite:
    """Inherit it and name the corpus: `corpus = "my_module.MyCorpus"`; `data` says how to make it."""

    corpus: str
    """the name in data.corpus"""
    data: Data = Data(vocab_size=100)
    """folder, splits, languages; as many pieces as the text allows"""
    overlap: int = 0
    """most held-out pairs that may also occur in the training text"""

    def altered(self) -> Data | None:
        """Override it where the text depends on more than `data`: change that, a file say, and return the settings."""
        return None

    # --- checks ---

    def test_pairs(self) -> None:
        for split, corpus in self._splits():
            count = 0
            for count, pair in enumerate(corpus.lines(split), 1):
                good = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(line, str) for line in pair)
                assert good, f"{split}, pair {count}: expected a tuple of two strings, got {pair!r}"
            assert count, f"{split} has no pair"

    def test_no_line_is_broken(self) -> None:
        """One sentence a line: nothing empty, no line break, no NUL, valid UTF-8, unless bad lines are dropped."""
        settings = self._settings()
        for split, corpus in self._splits():
            dropped = settings.bad_lines == "drop" and split in settings.train.split("+")
            for number, pair in enumerate(corpus.lines(split), 1):
                wrong = None if dropped else flaw(pair, bool(corpus.source))
                assert wrong is None, f"{split}, pair {number}: {wrong[0]}: {pair!r}"
                assert not any(line.endswith(("\n", "\r")) for line in pair), f"{split}, pair {number}: a line end"

    def test_languages_and_names(self) -> None:
        for split, corpus in self._splits():
            languages = (corpus.source, corpus.target)
            assert languages[1] and languages[0] != languages[1], f"source and target are {languages}"
            names = [corpus.name(split, language) for language in languages if language]
            assert all(names) and len({*names}) == len(names), f"errors call both sides of {split} {names[0]!r}"

    def test_an_unknown_split_is_refused_in_words(self) -> None:
        try:
            count = sum(1 for _ in self._make().lines("no-such-split"))
        except UserError as error:
            assert "no-such-split" in str(error), f"the message does not name the split: {error}"
        else:
            raise AssertionError(f"an unknown split gives {count} pairs: it must be refused with a UserError")

    def test_the_second_reading_is_the_first(self) -> None:
        for split, corpus in self._splits():
            first = _digest(corpus.lines(split))
            assert _digest(corpus.lines(split)) == first, f"{split} read again is a different text"
            assert _digest(self._make().lines(split)) == first, f"{split} of a newly made corpus is a different text"

    def test_readings_do_not_disturb_each_other(self) -> None:
        for split, corpus in self._splits():
            whole = _digest(corpus.lines(split))
            list(islice(corpus.lines(split), 2))
            assert _digest(corpus.lines(split)) == whole, f"{split} changes after a reading that was abandoned early"
            text = list(islice(self._make().lines(split), 9))
            turns = islice(zip(corpus.lines(split), corpus.lines(split), strict=True), 9)
            assert list(turns) == [(pair, pair) for pair in text], f"{split} changes when two readings alternate"

    def test_another_process_reads_the_same(self) -> None:
        """Under another order of sets and hashes, as on every machine of a study."""
        settings = self._settings()
        folders = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        ours = os.environ.get("PYTHONHASHSEED", "")
        environment = os.environ | {"PYTHONPATH": folders, "PYTHONHASHSEED": "2" if ours == "1" else "1"}
        command = [sys.executable, "-P", __file__, json.dumps(asdict(settings))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"another process cannot read it:\n{done.stderr}"
        theirs = json.loads(done.stdout)
        for split, (text, fingerprint) in read(settings).items():
            assert theirs[split][0] == text, f"{split} is a different text in another process"
            assert theirs[split][1] == fingerprint, f"the fingerprint of {split} differs in another process"

    def test_the_fingerprint_stays(self) -> None:
        for split, corpus in self._splits():
            first = corpus_fingerprint(corpus, split)
            assert isinstance(first, str) and first, f"the fingerprint of {split} is {first!r}"
            list(islice(corpus.lines(split), 2))
            assert corpus_fingerprint(corpus, split) == first, f"the fingerprint of {split} changes by itself"
            assert corpus_fingerprint(self._make(), split) == first, (
                f"{split} of a newly made corpus has a different fingerprint"
            )

    def test_the_fingerprint_follows_the_text(self) -> None:
        """Under every setting that changes the text, and where `altered` does."""
        settings = self._settings()
        before, followed = read(settings), False
        for other in self._other_settings(settings):
            if other is None:
                continue
            try:
                after = read(other)
            except UserError:  # a corpus may refuse a setting: then there is no other text
                continue
            for split in before.keys() & after.keys():
                if after[split][0] != before[split][0]:
                    followed = True
                    assert after[split][1] != before[split][1], f"{split} is a different text with the same fingerprint"
        if not followed:
            raise SkipTest("no setting changes the text: override altered() to have the fingerprint checked")

    def test_held_out_text_is_not_trained_on(self) -> None:
        settings, corpus = self._settings(), self._make()
        trained = set(splits(settings)[: settings.train.count("+") + 1])
        held_out = {pair for split in splits(settings) if split not in trained for pair in corpus.lines(split)}
        shared = {pair for split in trained for pair in corpus.lines(split)} & held_out
        example = min(shared, default=None)
        assert len(shared) <= self.overlap, (
            f"{len(shared)} held-out pairs occur in the training data, such as {example}"
        )

    def test_it_can_be_prepared(self) -> None:
        """From raw text to the store that runs read."""
        settings, corpus = self._settings(), self._make()
        with tempfile.TemporaryDirectory() as folder:
            prepared = prepare(settings, Path(folder))
            for role, card in prepared.card["splits"].items():
                parts = card["name"].split("+") if role == "train" else [card["name"]]
                count = sum(1 for part in parts for _ in corpus.lines(part))
                assert card["pairs"]["read"] == count, f"{card['pairs']['read']} pairs of {card['name']}, not {count}"
                if role != "train":
                    references = [target for _, target in corpus.lines(card["name"])]
                    assert prepared.split(card["name"]).target_text() == references, f"references of {card['name']}"

    # --- how it is made ---

    def _settings(self) -> Data:
        return replace(self.data, corpus=self.corpus)

    def _make(self) -> Corpus:
        return make_corpus(self._settings())

    def _splits(self) -> Iterator[tuple[str, Corpus]]:
        """Every split, each with a newly made corpus."""
        for split in splits(self._settings()):
            yield split, self._make()

    def _other_settings(self, data: Data) -> Iterator[Data | None]:
        yield replace(data, pairs=data.pairs + 1)
        yield replace(data, corpus_seed=data.corpus_seed + 1)
        yield replace(data, source=data.target, target=data.source)
        yield (other := self.altered()) and replace(other, corpus=self.corpus)


def _digest(pairs: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(pair).encode(errors="surrogatepass"))
    return digest.hexdigest()


if __name__ == "__main__":  # another process, for `test_another_process_reads_the_same`
    print(json.dumps(read(Data(**json.loads(sys.argv[1])))))
