"""Files in, raw pairs out; what is wrong with them is told by name."""

import gzip

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.corpora import BuiltinCorpus, Corpus, FilesCorpus, corpus_fingerprint, make_corpus
from lightning_tfm.errors import UserError
from lightning_tfm.testing import CorpusSuite


class TestBuiltin(CorpusSuite):
    corpus, data = "builtin", Data(pairs=300, vocab_size=300)


class TestFiles(CorpusSuite):
    corpus = "files"

    @pytest.fixture(autouse=True)
    def text(self, files):
        self.files, self.data = files, files()

    def altered(self) -> Data:
        return self.files({"train.en": b"x\n" * 40, "val.de": b"x\n" * 8})


class TwoLines(Corpus):
    """A corpus of a user's own."""

    source, target = "x", "y"

    def __init__(self, data: Data):
        self._pairs = data.pairs

    def lines(self, split):
        yield from [(f"{split} eins", f"{split} one")] * self._pairs

    def fingerprint(self, split):
        return f"{split} {self._pairs}"

    def name(self, split, language):
        return f"two lines, {split}.{language}"


class Unfinished(Corpus):
    def lines(self, split):
        yield from ()


def test_files_split_at_line_feeds_alone(files):
    text = "a\x85b\u2028c\x0bd\n\ufeffe \n  f\r\nlast".encode()
    corpus = make_corpus(files({"train.en": b"\xef\xbb\xbf" + text, "train.de": text}))
    assert isinstance(corpus, FilesCorpus) and (corpus.source, corpus.target) == ("en", "de")
    pairs = list(corpus.lines("train"))
    assert [source for source, _ in pairs] == ["a\x85b\u2028c\x0bd", "\ufeffe ", "  f", "last"]
    assert all(source == target for source, target in pairs)


def test_gzip_is_read_and_the_plain_file_comes_first(files):
    data = files({"extra.en.gz": gzip.compress(b"one\ntwo\n"), "extra.de": b"eins\nzwei\n"})
    corpus = make_corpus(data)
    assert list(corpus.lines("extra")) == [("one", "eins"), ("two", "zwei")]
    assert corpus.name("extra", "en").endswith("extra.en.gz")
    before = corpus.fingerprint("extra")
    data = files({"extra.en": b"plain\nfile\n"})
    assert next(make_corpus(data).lines("extra")) == ("plain", "eins")
    assert make_corpus(data).fingerprint("extra") != before


def test_other_language_pairs(files):
    data = files({"train.fr": b"un\n" * 40}, source="de", target="fr")
    assert next(make_corpus(data).lines("train"))[1] == "un"


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"train.de": b"eins\nzwei\n"}, r"train\.en has 40 lines, .*train\.de has 2"),
        ({"train.de": b"x\n" * 41}, r"train\.en has 40 lines, .*train\.de has 41"),
        ({"train.en": b""}, r"train\.en is empty"),
        ({"train.en": b"", "train.de": b""}, r"train\.en is empty"),
    ],
)
def test_files_that_do_not_fit_together(files, replaced, message):
    with pytest.raises(UserError, match=message):
        list(make_corpus(files(replaced)).lines("train"))


@pytest.mark.parametrize("content", [gzip.compress(b"one\n" * 40)[:-6], b"no gzip at all", b""])
def test_broken_gzip(files, content):
    with pytest.raises(UserError, match=r"extra\.en\.gz is (no whole gzip file|empty)"):
        list(make_corpus(files({"extra.en.gz": content, "extra.de": b"x\n" * 40})).lines("extra"))


def test_missing_file_names_what_was_tried_and_what_is_there(files):
    with pytest.raises(UserError, match=r"neither dev\.en nor dev\.en\.gz; it holds: test\.de, test\.en, train\.de"):
        list(make_corpus(files()).lines("dev"))
    with pytest.raises(UserError, match="there is no such folder"):
        list(make_corpus(Data(corpus="files", folder="/nowhere/at/all")).lines("train"))


def test_corpus_of_ones_own():
    corpus = make_corpus(Data(corpus=f"{__name__}.TwoLines", pairs=2))
    assert list(corpus.lines("train")) == [("train eins", "train one")] * 2
    assert corpus_fingerprint(corpus, "val").endswith(" val 2")
    assert len(corpus_fingerprint(corpus, "val")) > 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("buildin", "did you mean 'builtin'"),
        ("no.such.module.Class", "cannot be imported"),
        (f"{__name__}.Missing", "cannot be imported"),
        ("pathlib.Path", "must be a subclass"),
        (f"{__name__}.Unfinished", "lacks the methods fingerprint, name"),
    ],
)
def test_wrong_corpus_names(name, message):
    with pytest.raises(UserError, match=message):
        make_corpus(Data(corpus=name))


def test_builtin_by_name():
    assert isinstance(make_corpus(Data()), BuiltinCorpus)
