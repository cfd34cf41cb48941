"""WMT: downloads that are broken off, and what the official files hold."""

import errno
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Data
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.wmt import download, manifest, official
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.download import Remote, fetch
from lightning_tfm.data.wmt.official import obtain, read_segments
from lightning_tfm.data.wmt.unpack import extract
from lightning_tfm.errors import UserError
from lightning_tfm.sums import recorded
from lightning_tfm.testing import CorpusSuite
from tests.data.wmt.server import File, serve

CONTENT = bytes(range(256)) * 300


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)


def quiet(line: str) -> None:
    pass


def left(folder: Path) -> list[str]:
    """What lies in a folder besides locks and records."""
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock") and p.name != "checksums.json")


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    level: dict[str, Any] = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(fileobj=made, mode=mode, **level) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_a_file_is_fetched_once_and_recorded(tmp_path):
    file = File(CONTENT)
    with serve({"a.bin": file}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))
        assert fetch(remote, tmp_path, quiet).read_bytes() == CONTENT
        fetch(remote, tmp_path, quiet)
    assert file.asked == [""]
    record = Checksums(tmp_path).find("a.bin")
    assert record["sha256"] == hashlib.sha256(CONTENT).hexdigest() and record["bytes"] == len(CONTENT)
    assert left(tmp_path) == ["a.bin"]


def test_cut_connections_are_taken_up_where_they_broke(tmp_path):
    file = File(CONTENT, cut_after=20_000)
    with serve({"a.bin": file}) as url:
        assert fetch(Remote("a.bin", (f"{url}/a.bin",)), tmp_path, quiet).read_bytes() == CONTENT
    assert file.asked == ["", "bytes=20000-", "bytes=40000-", "bytes=60000-"]


def test_an_interrupted_download_goes_on_in_the_next_process(tmp_path, monkeypatch):
    file = File(CONTENT, cut_after=20_000)
    with serve({"a.bin": file}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))

        def interrupt(seconds):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(download, "sleep", interrupt)
            fetch(remote, tmp_path, quiet)
        assert left(tmp_path) == ["a.bin.part", "a.bin.part.json"]
        file.cut_after = 0
        assert fetch(remote, tmp_path, quiet).read_bytes() == CONTENT
    assert file.asked == ["", "bytes=20000-"] and left(tmp_path) == ["a.bin"]


def test_a_file_that_changes_on_the_server_is_started_over(tmp_path, monkeypatch):
    file, newer = File(CONTENT, cut_after=20_000), CONTENT[::-1]

    def change(seconds):
        file.content, file.cut_after = newer, 0

    monkeypatch.setattr(download, "sleep", change)
    with serve({"a.bin": file}) as url:
        assert fetch(Remote("a.bin", (f"{url}/a.bin",)), tmp_path, quiet).read_bytes() == newer


def test_a_server_without_ranges(tmp_path, monkeypatch):
    file = File(CONTENT, cut_after=20_000, ranges=False)
    monkeypatch.setattr(download, "sleep", lambda seconds: setattr(file, "cut_after", 0))
    with serve({"a.bin": file}) as url:
        assert fetch(Remote("a.bin", (f"{url}/a.bin",)), tmp_path, quiet).read_bytes() == CONTENT


def test_mirrors_are_asked_in_turn(tmp_path):
    files = {
        "gone/a.bin": File(b"", status=404),
        "cut/a.bin": File(CONTENT, announce=10**6),
        "good/a.bin": File(CONTENT),
    }
    with serve(files) as url:
        remote = Remote("a.bin", tuple(f"{url}/{mirror}/a.bin" for mirror in ("gone", "cut", "good")))
        assert fetch(remote, tmp_path, quiet).read_bytes() == CONTENT
        assert Checksums(tmp_path).find("a.bin")["url"] == f"{url}/good/a.bin"


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_wrong_published_checksum(tmp_path, kind):
    files = {"bad/a.bin": File(CONTENT[:-1] + b"x"), "good/a.bin": File(CONTENT)}
    published = {kind: hashlib.new(kind, CONTENT).hexdigest()}
    with serve(files) as url:
        with pytest.raises(
            UserError, match=rf"cannot be fetched:\n.*bad/a.bin: {kind} \w+, published: {published[kind]}"
        ):
            fetch(Remote("a.bin", (f"{url}/bad/a.bin",), **published), tmp_path, quiet)
        assert left(tmp_path) == []
        remote = Remote("a.bin", (f"{url}/bad/a.bin", f"{url}/good/a.bin"), **published)
        assert fetch(remote, tmp_path, quiet).read_bytes() == CONTENT


def test_a_checksum_recorded_at_first_use_holds(tmp_path):
    file = File(CONTENT)
    with serve({"a.bin": file}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))
        fetch(remote, tmp_path, quiet).unlink()
        file.content = CONTENT[::-1]
        with pytest.raises(UserError, match="recorded at first use"):
            fetch(remote, tmp_path, quiet)


def test_a_changed_local_file_is_named(tmp_path):
    with serve({"a.bin": File(CONTENT)}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))
        path = fetch(remote, tmp_path, quiet)
        path.write_bytes(CONTENT[:-1])
        with pytest.raises(UserError, match=f"has {len(CONTENT) - 1} bytes, but {len(CONTENT)} when it was first used"):
            fetch(remote, tmp_path, quiet)
        path.write_bytes(CONTENT[:-1] + b"x")
        ((name, fault),) = Checksums(tmp_path).verify()
        assert name == "a.bin" and fault.startswith("sha256")


def test_a_file_put_there_by_hand_is_checked(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    assert fetch(Remote("a.bin", (), sha256=hashlib.sha256(CONTENT).hexdigest()), tmp_path, quiet).is_file()
    (tmp_path / "b.bin").write_bytes(CONTENT)
    with pytest.raises(UserError, match=r"b\.bin: sha256 .* published: 0{64}; remove it"):
        fetch(Remote("b.bin", (), sha256="0" * 64), tmp_path, quiet)


@pytest.mark.parametrize("name", ["a.tgz", "a.tar", "a.gz"])
@pytest.mark.parametrize("keep", [0.3, 0.7])
def test_a_truncated_archive_is_no_archive(tmp_path, name, keep):
    """The server itself holds half a file: its length is announced, and no checksum is known."""
    noise = os.urandom(40_000)
    whole = (
        gzip.compress(noise) if name == "a.gz" else tar((member("x"), noise), mode="w:gz" if name == "a.tgz" else "w")
    )
    with serve({name: File(whole[: int(len(whole) * keep)])}) as url:
        with pytest.raises(UserError, match="not a complete archive"):
            fetch(Remote(name, (f"{url}/{name}",)), tmp_path, quiet)
    assert left(tmp_path) == [] and Checksums(tmp_path).find(name) is None


HOSTILE = {
    "parent": (member("../evil"), "leads out of its folder"),
    "inner parent": (member("a/../../evil"), "leads out of its folder"),
    "absolute": (member("/tmp/evil"), "leads out of its folder"),
    "symbolic link": (member("text", tarfile.SYMTYPE, "/etc/passwd"), "the link 'text' -> '/etc/passwd'"),
    "hard link": (member("text", tarfile.LNKTYPE, "good"), "the link 'text'"),
    "device": (member("text", tarfile.CHRTYPE), "neither file nor folder"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_whole(tmp_path, case):
    info, message = HOSTILE[case]
    content = tar((member("good"), b"good"), (info, b""))
    with serve({"a.tgz": File(content)}) as url, pytest.raises(UserError, match=message):
        fetch(Remote("a.tgz", (f"{url}/a.tgz",)), tmp_path / "in", quiet)
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(UserError, match=f"{message}.*nothing was unpacked|is not a regular file"):
        extract(tmp_path / "a.tgz", {"text": tmp_path / "out" / "text"})
    assert not (tmp_path / "out" / "text").exists() and not Path("/tmp/evil").exists()


def test_what_an_archive_lacks_is_named(tmp_path):
    (tmp_path / "a.tgz").write_bytes(tar((member("training/x.de"), b"a\n")))
    with pytest.raises(UserError, match=r"lacks training/x\.fr; it holds: training/x\.de"):
        extract(tmp_path / "a.tgz", {"training/x.fr": tmp_path / "x.fr"})


def test_a_full_disk_is_named_and_what_came_is_kept(tmp_path, monkeypatch):
    file = File(CONTENT, cut_after=20_000)
    copy = download._copy

    def full(answer, part, mode):
        if mode == "ab":
            raise OSError(errno.ENOSPC, "No space left on device")
        copy(answer, part, mode)

    with serve({"a.bin": file}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))
        with monkeypatch.context() as patch, pytest.raises(UserError, match="no space left after 20000 bytes"):
            patch.setattr(download, "_copy", full)
            fetch(remote, tmp_path, quiet)
        assert fetch(remote, tmp_path, quiet).read_bytes() == CONTENT


def test_a_file_larger_than_the_disk_is_not_begun(tmp_path):
    with serve({"a.bin": File(b"x", announce=1 << 60)}) as url, pytest.raises(UserError, match="no space left after 0"):
        fetch(Remote("a.bin", (f"{url}/a.bin",)), tmp_path, quiet)


def test_two_processes_at_once_fetch_once(tmp_path, forks):
    file = File(CONTENT * 20, cut_after=300_000)
    with serve({"a.bin": file}) as url:
        remote = Remote("a.bin", (f"{url}/a.bin",))
        workers = [forks.start(lambda: fetch(remote, tmp_path, quiet)) for _ in range(3)]
        assert [forks.join(worker, 60) for worker in workers] == [0, 0, 0]
    assert file.asked.count("") == 1 and (tmp_path / "a.bin").read_bytes() == file.content
    assert json.loads((tmp_path / "checksums.json").read_bytes())["a.bin"]["bytes"] == len(file.content)


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
    return tar(*((member(name), content) for name, content in files.items()))


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
