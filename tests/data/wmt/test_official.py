"""From the official archives, as a server on the loopback holds them, to the store; and to a machine without one."""

import gzip
import io
import os
import random
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Data
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.wmt import download, manifest, official
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.official import obtain, read_segments
from lightning_tfm.errors import UserError
from lightning_tfm.sums import recorded
from lightning_tfm.testing import CorpusSuite
from tests.data.wmt.server import File, serve

REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")
WORDS = "der die das Haus Wind Tor See steht weht liegt & alt <neu> leise".split()


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(3, 9))) + f" {i} ." for i in range(count)]


def sgm(lines: list[str], kind: str, language: str) -> bytes:
    """As WMT writes it: no character reference is resolved anywhere."""
    segments = "\n".join(f'<seg id="{i}"> {line} </seg>' for i, line in enumerate(lines, 1))
    return (
        f'<{kind} setid="newstest" srclang="any" trglang="{language}">\n'
        f'<doc docid="1" genre="news" origlang="en">\n<p>\n{segments}\n</p>\n</doc>\n</{kind}>\n'
    ).encode()


def tgz(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def archives(lines_2014: int = 3003, other: str = "de", pair: str = "deen") -> dict[str, File]:
    """Stand-ins for everything that WMT 2014 needs, with the true names inside."""
    train = {language: sentences(40, seed) for seed, language in enumerate(("en", other))}
    dev = {language: sentences(3000, seed) for seed, language in enumerate(("en", other), 5)}
    test = {language: sentences(3003, seed) for seed, language in enumerate(("en", other), 7)}

    def parallel(pattern: str) -> bytes:
        return tgz({pattern.format(language): text(train[language]) for language in ("en", other)} | {"extra": b"x"})

    def newstest(folder: str, lines: int) -> bytes:
        return tgz(
            {
                f"{folder}/newstest2014-{pair}-src.en.sgm": sgm(test["en"][:lines], "srcset", "en"),
                f"{folder}/newstest2014-{pair}-ref.{other}.sgm": sgm(test[other][:lines], "refset", other),
            }
        )

    found = {
        "training-parallel-europarl-v7.tgz": parallel(f"training/europarl-v7.{other}-en.{{}}"),
        "training-parallel-commoncrawl.tgz": parallel(f"commoncrawl.{other}-en.{{}}"),
        "training-parallel-nc-v9.tgz": parallel(f"training/news-commentary-v9.{other}-en.{{}}"),
        "newstest2013.tgz": tgz({f"test/newstest2013-src.{x}.sgm": sgm(dev[x], "srcset", x) for x in ("en", other)}),
        "newstest2014-full.tgz": newstest("test-full", lines_2014),
        "newstest2014-filtered.tgz": newstest("test", 2737),
    }
    if other == "fr":
        found["training-parallel-un.tgz"] = parallel("un/undoc.2000.fr-en.{}")
        giga = {f"giga-fren.release2.fixed.{x}.gz": gzip.compress(text(train[x])) for x in ("en", "fr")}
        found["training-giga-fren.tar"] = gzip.decompress(tgz(giga))
    return {name: File(content) for name, content in found.items()}


@pytest.fixture
def unpublished(monkeypatch):
    """The stand-ins have other checksums than the true sets."""
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name, source in list(manifest.SOURCES.items()):
        remotes = tuple(replace(remote, urls=(), md5="", sha256="") for remote in source.remotes)
        monkeypatch.setitem(manifest.SOURCES, name, replace(source, remotes=remotes))


@pytest.fixture
def wmt(tmp_path, monkeypatch, unpublished):
    """Data of WMT 2014 English-German whose server is here."""
    files = archives()
    with serve(files) as url:
        monkeypatch.setenv(official.MIRROR, url)
        yield Data("wmt14-en-de", str(tmp_path / "wmt"), dev="newstest2013", test="newstest2014", vocab_size=80), files


SPLITS = ["train", "newstest2013", "newstest2014"]


def quiet(line: str) -> None:
    pass


class TestFetched(CorpusSuite):
    corpus = "wmt14-en-de"

    @pytest.fixture(autouse=True)
    def text(self, wmt):
        self.data = wmt[0]
        obtain(self.data, SPLITS, quiet)


def test_from_archives_to_the_store(wmt, tmp_path):
    data, files = wmt
    with pytest.raises(UserError, match=r"newstest2013\.en is missing: lightning-tfm data prepare wmt14-en-de"):
        prepare(data, tmp_path)
    obtain(data, SPLITS, quiet)
    prepared = prepare(data, tmp_path)
    counts = {role: split["pairs"]["kept"] for role, split in prepared.card["splits"].items()}
    assert counts == {"train": 120, "dev": 3000, "test": 3003}
    assert prepared.split("newstest2014").target_text()[5] == sentences(3003, 8)[5]
    obtain(data, SPLITS, quiet)
    assert all(file.asked == [""] for name, file in files.items() if name != "newstest2014-filtered.tgz")
    assert not files["newstest2014-filtered.tgz"].asked
    parts = [pair for part in ("commoncrawl", "europarl-v7") for pair in make_corpus(data).lines(part)]
    assert len(parts) == 80


def test_english_french_with_un_and_gigaword(tmp_path, monkeypatch, unpublished):
    with serve(archives(other="fr", pair="fren")) as url:
        monkeypatch.setenv(official.MIRROR, url)
        data = Data("wmt14-en-fr", str(tmp_path / "wmt"), target="fr", dev="newstest2013", test="newstest2014")
        obtain(data, SPLITS, quiet)
        assert sum(1 for _ in make_corpus(data).lines("train")) == 200
        assert (tmp_path / "wmt" / "text" / "giga-fren.fr.gz").is_file()


def test_the_paper_s_pieces_and_their_vocabulary(tmp_path, monkeypatch, unpublished):
    """One archive with the true names inside; the store, made once, needs neither it nor the texts."""
    names = {"train.tok.clean": 40, "newstest2013.tok": 3000, "newstest2014.tok": 3003}
    texts = {f"{name}.bpe.32000.{x}": sentences(n, n) for name, n in names.items() for x in ("en", "de")}
    vocabulary = "".join(f"{word}\n" for word in ["<unk>", "<s>", "</s>", *WORDS, ".", *map(str, range(3003))])
    content = {name: text(lines) for name, lines in texts.items()} | {"vocab.bpe.32000": vocabulary.encode()}
    data = Data("wmt16-en-de-bpe", str(tmp_path / "bpe"), dev="newstest2013", test="newstest2014", tokenizer="pieces")
    with serve({"wmt16_en_de.tar.gz": File(tgz(content))}) as url:
        monkeypatch.setenv(official.MIRROR, url)
        with pytest.raises(UserError, match="is missing: lightning-tfm data prepare wmt16-en-de-bpe"):
            prepare(data, tmp_path)
        obtain(data, SPLITS, quiet)
    with pytest.raises(UserError, match="40 lines, but train has 4500966"):
        prepare(data, tmp_path)
    source = manifest.SOURCES["wmt16-en-de-bpe"]
    shorter = source.splits | {"train": (replace(source.splits["train"][0], lines=40),)}
    monkeypatch.setitem(manifest.SOURCES, "wmt16-en-de-bpe", replace(source, splits=shorter))
    prepared = prepare(data, tmp_path)
    assert prepared.tokenizer.V == 4 + len(WORDS) + 1 + 3003
    assert {role: split["pieces"]["source"]["unknown"] for role, split in prepared.card["splits"].items()} == {
        "train": 0, "dev": 0, "test": 0,
    }  # fmt: skip
    assert prepared.split("newstest2013").target_text() == texts["newstest2013.tok.bpe.32000.de"]
    for path in (tmp_path / "bpe").rglob("*"):
        if path.is_file() and path.name != "checksums.json":
            path.unlink()
    assert prepare(data, tmp_path).folder == prepared.folder


def test_the_filtered_set_is_another_set_and_is_named(wmt, tmp_path):
    data, files = wmt
    obtain(data, ["newstest2014-filtered"], quiet)
    assert sum(1 for _ in make_corpus(data).lines("newstest2014-filtered")) == 2737
    files["newstest2014-full.tgz"] = archives(lines_2014=2737)["newstest2014-full.tgz"]
    with pytest.raises(UserError, match=r"has 2737 segments, newstest2014 has 3003: this is newstest2014-filtered"):
        obtain(data, ["newstest2014"], quiet)
    assert not (tmp_path / "wmt" / "text" / "newstest2014.en").exists()


def test_killed_between_steps_it_goes_on(wmt, tmp_path, monkeypatch):
    data, files = wmt

    class Killed(BaseException):
        pass

    def die(*args):
        raise Killed

    for name in ("extract", "sha256", "read_segments"):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(official, name, die)
            obtain(data, ["newstest2013"], quiet)
        assert not (tmp_path / "wmt" / "text" / "newstest2013.en").exists()
    obtain(data, ["newstest2013"], quiet)
    assert files["newstest2013.tgz"].asked == [""]


def test_both_layouts_give_equal_text(tmp_path):
    lines = [*sentences(50, 1), "a\u00a0b  c", "&quot;x&quot; < y > z"]
    (tmp_path / "a.sgm").write_bytes(sgm(lines, "refset", "de"))
    (tmp_path / "a.de").write_bytes(text(lines))
    assert read_segments(tmp_path / "a.sgm") == read_segments(tmp_path / "a.de")
    (tmp_path / "cut.sgm").write_bytes(sgm(lines, "refset", "de")[:-700])
    with pytest.raises(UserError, match=r"segments begin, \d+ end: the file is damaged"):
        read_segments(tmp_path / "cut.sgm")


@pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_newstest2013_as_sacrebleu_reads_it(tmp_path, language, monkeypatch):
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    lines = gzip.decompress(Path(f"{REAL_TEXT}/wmt-news/val.{language}.gz").read_bytes()).decode().split("\n")[:-1]
    (tmp_path / "a.sgm").write_bytes(sgm(lines, "srcset", language))
    (tmp_path / "a.txt").write_bytes(text(lines))
    theirs = FakeSGMLDataset("x", langpairs={})
    theirs._convert_format(str(tmp_path / "a.sgm"), str(tmp_path / "theirs"))
    ours = read_segments(tmp_path / "a.sgm")
    assert len(ours) == 3000 and ours == read_segments(tmp_path / "a.txt")
    assert ours == (tmp_path / "theirs").read_text().split("\n")[:-1]


@pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")
def test_multi30k_is_what_was_published(tmp_path, monkeypatch):
    files = {p.name: File(p.read_bytes()) for p in Path(f"{REAL_TEXT}/multi30k").glob("*.gz")}
    with serve(files) as url:
        monkeypatch.setenv(official.MIRROR, url)
        data = Data("multi30k", str(tmp_path), test="test_2016_flickr")
        obtain(data, ["train", "val", "test_2016_flickr"], quiet)
        assert sum(1 for _ in make_corpus(data).lines("train")) == 29000
        assert make_corpus(data).fingerprint("val") == make_corpus(replace(data, corpus="files")).fingerprint("val")


def test_a_prepared_corpus_is_carried_to_a_machine_without_internet(wmt, tmp_path):
    """As docs/howto/cluster.md says: the store, the checksums and the held-out texts."""
    data, _ = wmt
    obtain(data, SPLITS, quiet)
    here = prepare(data, tmp_path / "here")
    there = replace(data, folder=str(tmp_path / "there" / "wmt"))
    shutil.copytree(tmp_path / "here" / "data", tmp_path / "there" / "data")
    (Path(there.folder) / "text").mkdir(parents=True)
    for path in (Path(data.folder) / "text").glob("newstest*"):
        shutil.copy(path, Path(there.folder) / "text")
    shutil.copy(Path(data.folder) / "checksums.json", there.folder)
    prepared = prepare(there, tmp_path / "there")
    assert prepared.train_fingerprint == here.train_fingerprint
    assert prepared.split("train").source(3).tolist() == here.split("train").source(3).tolist()
    assert [fault for _, fault in Checksums(prepared.folder).verify()] == [""] * len(recorded(prepared.folder))
    with pytest.raises(UserError, match="is missing"):
        next(make_corpus(there).lines("train"))


def test_the_verb(wmt, tmp_path, capsys, monkeypatch):
    data, _ = wmt
    monkeypatch.chdir(tmp_path)
    options = ["--data.folder", data.folder, "--data.vocab_size", "80", "--out", "out"]
    assert main(["data", "prepare", "wmt14-en-de", *options, "--sets", "[newstest2014-filtered]"]) == 0
    said = capsys.readouterr()
    assert "dev   newstest2013: 3,000 pairs of 3,000" in said.out and "dropped: duplicate" in said.out
    assert main(["data", "show", "wmt14-en-de", *options, "--pairs", "2"]) == 0
    assert capsys.readouterr().out.count(" tokens: ") == 4
    assert main(["data", "verify", "wmt14-en-de", *options]) == 0
    assert "files as recorded, 0 not" in capsys.readouterr().out
    path = Path(data.folder) / "text" / "newstest2014.de"
    path.write_bytes(path.read_bytes().replace(b"Haus", b"Hans", 1))
    capsys.readouterr()
    assert main(["data", "verify", "wmt14-en-de", *options]) == 1
    assert "newstest2014.de: sha256" in capsys.readouterr().out
    assert main(["data", "prepare", "wmt15"]) == 2
    assert main(["data", "clean"]) == 2
