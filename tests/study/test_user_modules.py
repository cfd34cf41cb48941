"""What a class of the user's own computes by the modules that it imports is part of a run's name."""

import hashlib
import shutil
import sys
from dataclasses import replace
from importlib import invalidate_caches
from itertools import count
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.study.classes import own_classes, user_classes
from lightning_tfm.study.rows import Fingerprints, Paper, Row, all_rows
from lightning_tfm.study.study import Ablation, load_as, save
from lightning_tfm.user_modules import reached, variables_read

TOPS = count()
NOT_PRINTED = Paper(None, None, None)


@pytest.fixture
def made(tmp_path: Path, monkeypatch):
    """A package of a new name with `files`, `{top}` in them for that name; its class is `{top}.mine.Mine`."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(files: dict[str, str]) -> str:
        top = f"users{next(TOPS)}"
        for name, text in ({"__init__.py": ""} | files).items():
            path = tmp_path / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{top}", top))
        return top

    return make


def identity(top: str) -> str:
    base = Experiment()
    mine = replace(base, model=replace(base.model, feed_forward=f"{top}.mine.Mine"))
    return user_classes(mine)[f"{top}.mine.Mine"]


CLASS = "\n\n\nclass Mine:\n    pass\n"
WAYS = {
    "import {top}.parts.act": "parts/act.py",
    "import {top}.parts.act as act": "parts/act.py",
    "from {top}.parts import act": "parts/act.py",
    "from {top}.parts.act import f": "parts/act.py",
    "from . import act": "act.py",
    "from .parts import act": "parts/act.py",
    "from .parts.act import f": "parts/act.py",
    "from .parts.act import *": "parts/act.py",
    "def late():\n    from .parts import act": "parts/act.py",
    "try:\n    import fast\nexcept ImportError:\n    from .parts import act": "parts/act.py",
    "from .other import g": "act.py",  # which imports it
    "from .parts.act import f  # runs the package": "parts/__init__.py",
}


@pytest.mark.parametrize("line, changed", WAYS.items())
def test_the_source_of_what_a_class_imports_enters(made, tmp_path: Path, line: str, changed: str) -> None:
    act = "def f(x):\n    return x\n"
    files = {"mine.py": line + CLASS, "act.py": act, "parts/__init__.py": "", "parts/act.py": act}
    files |= {"other.py": "from . import act, mine\n\n\ndef g(x):\n    return act.f(x)\n", "unused.py": ""}
    top = made(files)
    before = identity(top)
    (tmp_path / top / "unused.py").write_text("x = 1\n")
    assert identity(top) == before
    (tmp_path / top / changed).write_text(act.replace("return x", "return 2 * x"))
    assert identity(top) != before
    (tmp_path / top / changed).write_text(files[changed])
    assert identity(top) == before


def test_a_class_that_imports_nothing_of_the_users_keeps_its_name(made, tmp_path: Path) -> None:
    """As it was: modules it inherits from, in order of name."""
    text = "import os.path\nimport torch.nn as nn\nimport numpy\nfrom lightning_tfm.config import Model\n"
    files = {"mine.py": text + "from .zero import Zero\n\n\nclass Mine(Zero):\n    pass\n"}
    files |= {"zero.py": "import json\nfrom abc import ABC\n\n\nclass Zero(ABC):\n    pass\n"}
    top = made(files)
    held = [f"{top}.{name}".encode() + b"\0" + files[f"{name}.py"].encode() for name in ("mine", "zero")]
    assert identity(top) == hashlib.sha256(b"".join(held)).hexdigest()


def test_cycles_end_and_nothing_is_imported_for_it(made) -> None:
    files = {
        "mine.py": "def late():\n    from .a import f" + CLASS,
        "a.py": "from . import b\n",
        "b.py": "from . import a\n",
    }
    top = made(files)
    assert identity(top) == identity(top)
    assert list(reached([f"{top}.mine"])) == [f"{top}", f"{top}.a", f"{top}.b"]
    assert f"{top}.a" not in sys.modules and f"{top}.b" not in sys.modules


def test_a_module_that_is_no_python_is_named(made) -> None:
    top = made({"mine.py": "def late():\n    from . import broken" + CLASS, "broken.py": "def f(:\n"})
    with pytest.raises(UserError, match=r"broken\.py: your own class imports it, and it is not Python"):
        identity(top)


def table(top: str) -> Ablation:
    rows = [all_rows()["base"], Row("own", "X", {"model.feed_forward": f"{top}.mine.Mine"}, NOT_PRINTED, "here:1")]
    study = Ablation(
        name="own", base=Experiment(), rows=rows, seeds=[1], prints=Fingerprints("t", "d"), V=300, store="s"
    )
    return study.with_sources()


@pytest.mark.parametrize("after", ["gone", "changed"])
def test_a_study_is_read_as_it_was_started_whatever_became_of_its_classes(made, tmp_path: Path, after: str) -> None:
    top = made({"mine.py": CLASS})
    started = save(table(top), tmp_path)
    cells, file = started.cells(), tmp_path / top / "mine.py"
    for name in [name for name in sys.modules if name.startswith(top)]:
        del sys.modules[name]
    invalidate_caches()
    if after == "gone":
        shutil.rmtree(tmp_path / top)
    else:
        file.write_text("# another\n" + CLASS)
    read = load_as(Ablation, tmp_path, "own")
    assert read == started and read.cells() == cells
    said = "cannot import it" if after == "gone" else "here it is run .* of your own class, differ"
    with pytest.raises(UserError, match=said):
        read.plan(cells[1], tmp_path)
    assert read.plan(cells[0], tmp_path)[1] == read.identity(cells[0])
    with pytest.raises(UserError, match="cannot import it" if after == "gone" else "the source of .*Mine has changed"):
        save(table(top), tmp_path)


MADE = "def make():\n    class Mine:\n        pass\n\n    return Mine\n"
EDITS = {
    "a factory in another module": (
        {"mine.py": "from .makers import make\n\nMine = make()\nMine.scale = 1\n", "makers.py": MADE},
        "mine.py",
    ),
    "a re-export that sets an attribute": (
        {"mine.py": "from .inner import Mine\n\nMine.scale = 1\n", "inner.py": CLASS},
        "mine.py",
    ),
    "a constant in __init__.py": ({"__init__.py": "SCALE = 1\n", "mine.py": CLASS}, "__init__.py"),
    "__import__": ({"mine.py": '__import__("{top}.act")' + CLASS, "act.py": "x = 1\n"}, "act.py"),
    "import_module": (
        {"mine.py": 'import importlib\n\nimportlib.import_module("{top}.act")' + CLASS, "act.py": "x = 1\n"},
        "act.py",
    ),
    "import_module of a relative name": (
        {
            "mine.py": 'from importlib import import_module\n\nimport_module(".act", __package__)' + CLASS,
            "act.py": "x = 1\n",
        },
        "act.py",
    ),
}


@pytest.mark.parametrize("files, edited", EDITS.values(), ids=EDITS)
def test_an_edit_that_changes_what_a_class_computes_renames_its_runs(made, tmp_path: Path, files, edited) -> None:
    top = made(files)
    before, path = identity(top), tmp_path / top / edited
    path.write_text(path.read_text().replace("1", "2"))
    assert identity(top) != before


def test_the_environment_variables_that_a_class_reads_are_said(made, monkeypatch) -> None:
    head = "import os\nfrom os import environ, getenv\nfrom . import act\n"
    reads = 'A, B, C, D = os.environ["A"], environ.get("B", "1"), getenv("C"), os.getenv("D" + "E")\n'
    top = made(
        {"mine.py": f"{head}{reads}{CLASS}", "act.py": 'import os\n\nx = os.environ.get("F")\ny = {}.get("G")\n'}
    )
    for name in ("A", "B", "C", "F"):
        monkeypatch.setenv(name, "1")
    identity(top)
    said = variables_read([f"{top}.mine.Mine"])
    assert [line.split(" variable ")[1].split(",")[0] for line in said] == ["'D' + 'E'", "A", "B", "C", "F"]
    assert variables_read([]) == [] == variables_read(["lightning_tfm.config.Model"])


def test_a_helper_that_lies_among_the_installed_packages_enters(tmp_path: Path, monkeypatch) -> None:
    folder, name = tmp_path / "site-packages", f"alone{next(TOPS)}"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    (folder / f"{name}.py").write_text(f"import {name}_helper\nimport numpy" + CLASS)
    (folder / f"{name}_helper.py").write_text("x = 1\n")
    base = Experiment()
    mine = replace(base, model=replace(base.model, feed_forward=f"{name}.Mine"))
    before = user_classes(mine)
    assert list(reached([name])) == [f"{name}_helper"]
    (folder / f"{name}_helper.py").write_text("x = 2\n")
    assert user_classes(mine) != before


def test_two_spellings_of_one_experiment_have_one_name() -> None:
    def name(feed_forward: str, P_drop: float) -> str:
        base = Experiment()
        e = replace(base, model=replace(base.model, feed_forward=feed_forward, P_drop=P_drop))
        return training_hash(training_identity(e, "t", dict.fromkeys(own_classes(e).values(), "source")))

    assert name("m.X", 0.0) == name("m:X", 0.0) == name("m.X", -0.0) != name("m.Y", 0.0)
