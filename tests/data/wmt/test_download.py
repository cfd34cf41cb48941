"""No partial, wrong or hostile file is ever taken for whole; what can go on goes on."""

import errno
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from lightning_tfm.data.wmt import download
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.download import Remote, fetch
from lightning_tfm.data.wmt.unpack import extract
from lightning_tfm.errors import UserError
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
    with tarfile.open(fileobj=made, mode=mode) as archive:
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
