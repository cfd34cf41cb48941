"""What is committed names no folder of the machine that it was made on."""

import io
import json
import lzma
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import material
from lightning_tfm.cli.main import main

ROOT = Path(__file__).parents[1]
FOLDER = re.compile(r"(?<![\w.:/$~}-])/(?:home|root|work|tmp|mnt|media|scratch|Users)/[\w.-]+")


def committed() -> Iterator[tuple[str, str]]:
    """Name and content of every text in the repository but tests, which make folders up; inside archives too."""
    if not (ROOT / ".git").exists():
        pytest.skip("NOT TESTED: not a checkout, and git knows what is committed")
    trusted = ["-c", f"safe.directory={ROOT}"]  # whoever owns it
    done = subprocess.run(["git", *trusted, "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not (name.startswith("tests/") and name.endswith(".py")):
            yield from texts(name, path.read_bytes())


def texts(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    if name.endswith(".xz"):
        yield from texts(name.removesuffix(".xz"), lzma.decompress(data))
    elif name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                yield from texts(f"{name}:{member.name}", file.read() if file else b"")
    elif b"\0" not in data:
        yield name, data.decode()


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for key, inner in value.items() for text in (*strings(key), *strings(inner)))
    elif isinstance(value, list):
        yield from (text for inner in value for text in strings(inner))


NVIDIAS = {"/tmp/nvidia-mps"}
"""where NVIDIA's daemon for sharing a GPU listens, unless told otherwise"""


def absolute(name: str, text: str) -> set[str]:
    """Folders of a machine that a text names; in JSON, which programs write, every absolute path is one."""
    found = set(FOLDER.findall(text))
    if name.endswith(".json"):
        found |= {leaf for leaf in strings(json.loads(text)) if leaf.startswith("/")}
    return found - NVIDIAS


def test_no_committed_file_names_a_folder_of_a_machine():
    found = {name: sorted(folders) for name, text in committed() if (folders := absolute(name, text))}
    assert found == {}


def test_the_check_sees_them_where_they_are():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in (("result.json", b'{"folder": "/data/text"}'), ("log", b"in /home/me/results")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    inside = dict(texts("study.tar.xz", lzma.compress(archive.getvalue())))
    assert [absolute(name, text) for name, text in inside.items()] == [{"/data/text"}, {"/home/me"}]
    assert absolute("x.md", "https://host/home/x, ~/work/x, a/tmp/x and /proc/self") == set()


def test_a_benchmark_s_record_names_no_folder():
    sizes = {"root": "/tmp/x", "N": 3, "experiment": {"data": {"folder": "/srv/text/multi30k", "source": "en"}}}
    assert material.without_folders(sizes) == {"N": 3, "experiment": {"data": {"folder": "multi30k", "source": "en"}}}


def test_the_readmes_picture_of_the_architecture_is_what_draw_writes(tmp_path):
    assert main(["draw", "--config", str(ROOT / "experiments/base.yaml"), "--to", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (ROOT / "docs/_static/architecture.svg").read_bytes()
