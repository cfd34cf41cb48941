"""Files in, raw pairs out; what is wrong with them is told by name."""

import gzip
import sys

import pytest

from lightning_tfm.cli.arguments import make_parser, parse
from lightning_tfm.cli.main import main
from lightning_tfm.config import Data
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import BuiltinCorpus, Corpus, FilesCorpus, corpus_fingerprint, make_corpus
from lightning_tfm.errors import UserError
from lightning_tfm.registry import CORPORA
from lightning_tfm.testing import CorpusSuite

NEED_TEXT = (
    "FilesCorpus",
    "data.sources.monolingual:LinesCorpus",
    "data.wmt.official:OfficialCorpus",
    "data.treebank:TreebankCorpus",
    "data.sources.scan:ScanCorpus",
)
"""the suite has these below, in wmt/test_official.py, in test_trees.py, in test_scan.py and in test_lines.py"""


@pytest.mark.parametrize("check", [check for check in dir(CorpusSuite) if check.startswith("test_")])
@pytest.mark.parametrize("name", [name for name, part in CORPORA.items() if part.cls not in NEED_TEXT])
def test_what_ships_passes_its_suite(name, check):
    settings = {"corpus": name, "data": Data(pairs=300, vocab_size=300)}
    getattr(type("Shipped", (CorpusSuite,), settings)(), check)()


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


class Plain:
    """As little as a corpus of a user's own may be."""

    WORDS = "ka lo mi nu pe ri so ta".split()

    def lines(self, split):
        for number in range(30 if split == "train" else 4):
            words = [self.WORDS[(number * step) % 8] for step in (1, 3, 5)]
            yield " ".join(words), " ".join(reversed(words))


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


@pytest.mark.parametrize("content", [gzip.compress(b"one\n" * 40, mtime=0)[:-6], b"no gzip at all", b""])
def test_broken_gzip(files, content):
    with pytest.raises(UserError, match=r"extra\.en\.gz is (not a complete gzip file|empty)"):
        list(make_corpus(files({"extra.en.gz": content, "extra.de": b"x\n" * 40})).lines("extra"))


def test_missing_file_names_what_was_tried_and_what_is_there(files):
    with pytest.raises(UserError, match=r"neither dev\.en nor dev\.en\.gz; it holds: test\.de, test\.en, train\.de"):
        list(make_corpus(files()).lines("dev"))
    with pytest.raises(UserError, match="no such folder"):
        list(make_corpus(Data(corpus="files", folder="/nowhere/at/all")).lines("train"))


def test_corpus_of_ones_own():
    corpus = make_corpus(Data(corpus=f"{__name__}.TwoLines", pairs=2))
    assert list(corpus.lines("train")) == [("train eins", "train one")] * 2
    assert corpus_fingerprint(corpus, "val").endswith(" val 2")
    assert len(corpus_fingerprint(corpus, "val")) > 64


def test_the_source_of_what_a_corpus_imports_enters(tmp_path, monkeypatch):
    """Else a store of the text as it was would be taken for that of today."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_cleaning.py").write_text("def clean(line):\n    return line\n")
    derived = "from own_cleaning import clean\nfrom tests.data.sources.test_files import TwoLines\n\n\n"
    (tmp_path / "own_corpus.py").write_text(derived + "class Mine(TwoLines):\n    pass\n")
    corpus = make_corpus(Data(corpus="own_corpus.Mine", pairs=2))
    before = corpus_fingerprint(corpus, "val")
    assert corpus_fingerprint(corpus, "val") == before
    (tmp_path / "own_cleaning.py").write_text("def clean(line):\n    return line.lower()\n")
    assert corpus_fingerprint(corpus, "val") != before


def test_a_class_with_lines_is_a_corpus_known_by_its_text(tmp_path, monkeypatch):
    data = Data(corpus=f"{__name__}.Plain", vocab_size=30, source="xx", target="yy")
    corpus = make_corpus(data)
    assert (corpus.source, corpus.target) == ("xx", "yy") and len(list(corpus.lines("train"))) == 30
    assert corpus.name("val", "xx") == f"{__name__}.Plain, val.xx"
    assert corpus.fingerprint("val") == make_corpus(data).fingerprint("val") == corpus.fingerprint("test")
    assert corpus.fingerprint("val") != corpus.fingerprint("train")
    first = prepare(data, tmp_path)
    assert prepare(data, tmp_path).folder == first.folder
    monkeypatch.setattr(Plain, "WORDS", [*Plain.WORDS[:-1], "zu"])
    other = prepare(data, tmp_path)
    assert other.folder != first.folder and other.train_fingerprint != first.train_fingerprint


def test_pairs_cut_elsewhere_are_another_text(monkeypatch):
    corpora = [[("a b", "c")], [("a", "b c")], [("a", "b"), ("c", "")], [("a\xdc", "b c")], [("a\udcfc", "b c")]]
    seen = set()
    for pairs in corpora:
        monkeypatch.setattr(Plain, "lines", lambda self, split, pairs=pairs: iter(pairs))
        seen.add(make_corpus(Data(corpus=f"{__name__}.Plain")).fingerprint("train"))
    assert len(seen) == len(corpora)


MINE = """class Mine:
    def __init__(self, data):
        self.count = data.pairs

    def lines(self, split):
        for number in range(self.count):
            yield f"{split} one {number % 7}", f"{split} eins {number % 7}"
"""


def test_data_prepare_and_fit_take_a_class_from_the_working_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_own_module.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    options = ["--data.pairs=40", "--data.vocab_size=30", f"--out={tmp_path / 'out'}"]
    assert main(["data", "prepare", "my_own_module.Mine", *options]) == 0
    said = capsys.readouterr().out
    assert "my_own_module.Mine, en -> de; 30 tokens" in said and "40 pairs of 40" in said
    assert "data.max_len=256 leaves out 0 of 40 training pairs" in said
    assert main(["data", "prepare", "my_own_module.Mine", *options, "--data.max_len=2"]) == 0
    assert "data.max_len=2 leaves out 40 of 40 training pairs" in capsys.readouterr().out
    settings = parse(make_parser("fit", "test"), ["--data.corpus=my_own_module.Mine", *options])
    assert str(prepare(settings.exact.data, settings.out).folder) in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("buildin", "did you mean 'builtin'"),
        ("no.such.module.Class", "cannot import it"),
        (f"{__name__}.Missing", "cannot import it"),
        ("pathlib.Path", r"must be a class with a method lines\(split\)"),
        (f"{__name__}.Unfinished", "must define fingerprint, name too"),
    ],
)
def test_wrong_corpus_names(name, message):
    with pytest.raises(UserError, match=message):
        make_corpus(Data(corpus=name))


def test_builtin_by_name():
    assert isinstance(make_corpus(Data()), BuiltinCorpus)
