"""Corpora in files: parallel text, text of one language, SCAN."""

import gzip
import sys
from collections import Counter
from itertools import repeat

import pytest

from lightning_tfm.cli.arguments import make_parser, parse
from lightning_tfm.cli.main import main
from lightning_tfm.config import Data, Experiment, override
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import Corpus, FilesCorpus, corpus_fingerprint, make_corpus
from lightning_tfm.data.sources.length_buckets import LongText
from lightning_tfm.data.sources.monolingual import pack_texts
from lightning_tfm.data.sources.scan import commands, phrases
from lightning_tfm.errors import UserError
from lightning_tfm.registry import CORPORA
from lightning_tfm.testing import CorpusSuite
from tests.helpers.tiny import WORDS

NEED_TEXT = (
    "FilesCorpus",
    "data.sources.monolingual:LinesCorpus",
    "data.wmt.official:OfficialCorpus",
    "data.treebank:TreebankCorpus",
    "data.sources.scan:ScanCorpus",
)
"""the suite has these below, in wmt/test_download.py and in ../test_trees.py"""


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


def test_a_corpus_that_lacks_methods_is_refused_with_their_names():
    with pytest.raises(UserError, match="must define fingerprint, name too"):
        make_corpus(Data(corpus=f"{__name__}.Unfinished"))


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


LINES = ["a b c", "d", "e f", "", "g h", "  ", "", "i j k l m n o p", "q"]


def test_lines_of_one_document_become_texts_of_so_many_words():
    assert list(pack_texts(LINES, repeat(4))) == ["a b c d", "e f", "g h", "i j k l", "m n o p", "q"]
    assert list(pack_texts(LINES, repeat(6))) == ["a b c d e f", "g h", "i j k l m n", "o p q"]
    assert list(pack_texts(LINES, iter([1, 5, 2, 9, 3]))) == ["a", "b c d e f", "g h", "i j k l m n o p q"]
    assert list(pack_texts([], repeat(3))) == list(pack_texts(["", " "], repeat(3))) == []


@pytest.mark.parametrize("most", [1, 3, 7, 50])
def test_no_word_is_lost_and_none_has_more_than_asked(most):
    documents = [[" ".join(WORDS[i : i + k]) for i in range(k)] for k in (3, 5, 1)]
    lines = [line for document in documents for line in [*document, ""]]
    texts = list(pack_texts(lines, repeat(most)))
    assert " ".join(texts).split() == " ".join(lines).split()
    assert max(len(text.split()) for text in texts) <= most


def write(folder, **splits: str) -> Data:
    folder.mkdir(exist_ok=True)
    for name, text in splits.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    return Data(corpus="lines", folder=str(folder), vocab_size=40, max_words=6, test="")


TEXT = "".join(
    " ".join(WORDS[(i * k) % 16] for k in range(1, 3 + i % 5)) + "\n" + "\n" * (i % 7 == 0) for i in range(90)
)


class TestLines(CorpusSuite):
    corpus = "lines"
    overlap = 100

    @pytest.fixture(autouse=True)
    def text(self, tmp_path):
        self.folder = tmp_path / "text"
        self.data = write(self.folder, train=TEXT, val=TEXT[:300])

    def altered(self) -> Data:
        return write(self.folder, train=TEXT[100:], val=TEXT[:200])


def test_another_length_is_another_text(tmp_path):
    data = write(tmp_path, train=TEXT, val=TEXT[:300])
    prints = {
        make_corpus(override(Experiment(data=data), {"data.max_words": n}, "").data).fingerprint("train")
        for n in (0, 5, 6)
    }
    assert len(prints) == 3


def test_the_store_holds_no_source_and_the_card_says_nothing_of_one(tmp_path, capsys):
    from lightning_tfm.cli.data import card_text

    prepared = prepare(write(tmp_path / "text", train=TEXT, val="ka lo\nmi\n\nnu\n"), tmp_path)
    assert prepared.split("val").target_text() == ["ka lo mi", "nu"] and prepared.split("val").source_text() == ["", ""]
    assert not prepared.train.source_lengths.any() and prepared.train.target_lengths.all()
    said = card_text(prepared, 60)
    assert "lines, txt; 40 tokens" in said and "target: " in said and "source: " not in said and " sources " not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"ka lo\nmi \xff nu\n", "train.txt:2: broken line (not UTF-8)"),
        (b"ka\n\na\0b\n", "train.txt:3: broken line (NUL"),
        (b"\n\n", "train.txt is empty"),
    ],
)
def test_a_broken_line_is_named_by_its_place_in_the_file(tmp_path, text, said):
    data = write(tmp_path / "text", train="", val="ka\n")
    (tmp_path / "text" / "train.txt").write_bytes(text)
    with pytest.raises(UserError) as error:
        prepare(data, tmp_path)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_named_without_languages(tmp_path):
    data = write(tmp_path / "text", train=TEXT)
    with pytest.raises(
        UserError,
        match=r"neither val.txt nor val.txt.gz; it holds: train.txt. Set data.train, data.dev, data.test to match",
    ):
        prepare(data, tmp_path)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    corpus = make_corpus(write(tmp_path, train=TEXT))
    corpus.fingerprint("train")
    (tmp_path / "train.txt").write_text(TEXT[50:])
    with pytest.raises(UserError, match="changed while it was read"):
        list(corpus.lines("train"))


def test_lines_to_score_by_length_are_packed_to_all_of_them(tmp_path):
    data = write(tmp_path / "text", train=TEXT, val=TEXT, far=" ".join(TEXT.split() * 3))
    data = override(Experiment(data=data), {"data.long": "far", "data.max_len": 12}, "").data
    text = LongText(prepare(data, tmp_path), data)
    lengths = text.split("far").target_lengths + 1
    assert (lengths <= 12).any() and (lengths > 36).any() and lengths.max() <= 60


def test_the_built_in_text_is_the_target_side():
    data = Data(corpus="builtin-lines", pairs=20)
    plain = [target for _, target in make_corpus(Data(corpus="builtin", pairs=20)).lines("train")]
    assert list(make_corpus(data).lines("train")) == [("", target) for target in plain]


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
