"""What a class of the user's own computes by the modules that it imports is part of a run's name."""

import re
import shutil
import sys
from dataclasses import replace
from importlib import invalidate_caches
from itertools import count
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.model.positions import find_scheme
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as, save
from lightning_tfm.study.user_classes import own_classes, user_classes, whole_modules
from lightning_tfm.user_code.modules import reachable_sources, variables_read
from tests.helpers.studies import ablation, own_row
from tests.study.test_sweep_file import cases

TOPS = count()


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
WAYS = {  # lines that make f known -> how it is called, and the file that it is in
    "import {top}.parts.act": ("{top}.parts.act.f(2)", "parts/act.py"),
    "import {top}.parts.act as act": ("act.f(2)", "parts/act.py"),
    "from {top}.parts import act": ("act.f(2)", "parts/act.py"),
    "from {top}.parts.act import f": ("f(2)", "parts/act.py"),
    "from . import act": ("act.f(2)", "act.py"),
    "from .parts import act": ("act.f(2)", "parts/act.py"),
    "from .parts.act import f as g": ("g(2)", "parts/act.py"),
    "from .parts.act import *": ("f(2)", "parts/act.py"),
    "def late():\n    from .parts import act\n    return act.f(2)": ("late()", "parts/act.py"),
    "try:\n    import fast as act\nexcept ImportError:\n    from .parts import act": ("act.f(2)", "parts/act.py"),
    "from .other import g": ("g(2)", "act.py"),  # which imports it
    "from .parts import g": ("g(2)", "parts/__init__.py"),
    "from .lazy import f": ("f(2)", "lazy.py"),  # by __getattr__
    "import importlib\nact = importlib.import_module('{top}.act')": ("act.f(2)", "act.py"),
    "from importlib import import_module\nact = import_module('.act', __package__)": ("act.f(2)", "act.py"),
}


@pytest.mark.parametrize("line, changed", WAYS.items())
def test_what_a_class_uses_of_the_modules_that_it_imports_enters(made, tmp_path: Path, line: str, changed) -> None:
    act, (called, changed) = "def f(x):\n    return x\n", changed
    files = {"act.py": act, "parts/__init__.py": "def g(x):\n    return x\n", "parts/act.py": act}
    files |= {"other.py": "from . import act, mine\n\n\ndef g(x):\n    return act.f(x)\n", "unused.py": ""}
    files |= {
        "lazy.py": "def __getattr__(name):\n    if name == 'f':\n        return lambda x: x\n    raise AttributeError\n"
    }
    files |= {"mine.py": f"{line}\nimport {{top}}.unused\n\n\nclass Mine:\n    size = {called}\n"}
    top = made(files)
    before = identity(top)
    (tmp_path / top / "unused.py").write_text("x = 1\n")
    assert identity(top) == before
    file = tmp_path / top / changed
    text = file.read_text()
    file.write_text(text.replace("return x", "return 2 * x").replace("lambda x: x", "lambda x: 2 * x"))
    assert identity(top) != before
    file.write_text(text)
    assert identity(top) == before


def test_cycles_end_and_nothing_is_imported_for_it(made) -> None:
    files = {
        "mine.py": "def late():\n    from .a import f" + CLASS,
        "a.py": "from . import b\n",
        "b.py": "from . import a\n",
    }
    top = made(files)
    assert identity(top) == identity(top)
    assert list(reachable_sources([f"{top}.mine"])) == [f"{top}", f"{top}.a", f"{top}.b"]
    assert f"{top}.a" not in sys.modules and f"{top}.b" not in sys.modules


def test_a_module_that_is_no_python_is_named(made) -> None:
    late = "def late():\n    from . import broken\n\n\nclass Mine:\n    size = late\n"
    top = made({"mine.py": late, "broken.py": "def f(:\n"})
    with pytest.raises(UserError, match=r"broken\.py: your own class imports it, and it is not Python"):
        identity(top)


def table(top: str) -> Ablation:
    own = own_row("own", {"model.feed_forward": f"{top}.mine.Mine"})
    return ablation(["base", own], name="own").with_sources()


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
        file.write_text(CLASS.replace("pass", "scale = 2"))
    read = load_as(Ablation, tmp_path, "own")
    assert read == started and read.cells() == cells
    said = "cannot import it" if after == "gone" else "here it is run .* of your own class, differ"
    with pytest.raises(UserError, match=said):
        read.plan(cells[1], tmp_path)
    assert read.plan(cells[0], tmp_path)[1] == read.identity(cells[0])
    with pytest.raises(UserError, match="cannot import it" if after == "gone" else "the code of .*Mine has changed"):
        save(table(top), tmp_path)


_, *TEXTS = re.split(r"(?m)^# --- (.*) ---\n", Path(__file__).with_name("edited.txt").read_text())
FILES = dict(zip(TEXTS[::2], TEXTS[1::2], strict=True))
EDITS = cases("edits.txt")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A package with FILES, whose class is imported once."""
    folder, top = tmp_path_factory.mktemp("kept"), f"users{next(TOPS)}"
    for name, text in ({"__init__.py": ""} | FILES).items():
        (folder / top).mkdir(exist_ok=True)
        (folder / top / name).write_text(text)
    sys.path.insert(0, str(folder))
    yield folder / top, identity(top)
    sys.path.remove(str(folder))


@pytest.mark.parametrize(("name", "old", "new", "keeps"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS])
def test_an_edit_renames_runs_where_it_may_change_what_a_class_computes(kept, name, old, new, keeps) -> None:
    folder, before = kept
    assert FILES[name].count(old) == 1
    (folder / name).write_text(FILES[name].replace(old, new))
    try:
        assert (identity(folder.name) == before) == (keeps == "kept")
    finally:
        (folder / name).write_text(FILES[name])
    assert identity(folder.name) == before


MADE = "def make():\n    class Mine:\n        scale = 1\n\n    return Mine\n"
LAZY = "\n\ndef __getattr__(name):\n    if name == 'Mine':\n        return make()\n    raise AttributeError\n"
UNREAD = {  # where a source does not say what is used, all of a module counts, and a line says so
    "__getattr__ of a module": ({"mine.py": MADE + LAZY + "\n\nX = 1\n"}, "mine.py"),
    "globals()": ({"mine.py": "X = 1\n\n\nclass Mine:\n    size = globals()['X']\n"}, "mine.py"),
    "exec": ({"mine.py": "X = 1\nexec('class Mine: pass')\n"}, "mine.py"),
    "a module as an object": (
        {"mine.py": "from . import act\n\n\nclass Mine:\n    size = getattr(act, 'X')\n", "act.py": "X = 1\n"},
        "act.py",
    ),
    "an import by a computed name": (
        {"mine.py": "import importlib\n\nX = 1\n\n\nclass Mine:\n    of = importlib.import_module('js' + 'on')\n"},
        "mine.py",
    ),
}


@pytest.mark.parametrize("files, edited", UNREAD.values(), ids=UNREAD)
def test_where_a_source_does_not_say_what_is_used_the_whole_module_counts(made, tmp_path: Path, files, edited) -> None:
    top = made(files)
    before, path = identity(top), tmp_path / top / edited
    base = Experiment()
    (line,) = whole_modules(replace(base, model=replace(base.model, feed_forward=f"{top}.mine.Mine")))
    assert line.startswith(f"{top}.mine.Mine: the source does not say all that it uses of ") and edited[:-3] in line
    path.write_text(path.read_text().replace("X = 1", "X = 2"))
    assert identity(top) != before


def test_import_paths_within_the_package_do_not_count(made, tmp_path: Path) -> None:
    top = made({"mine.py": "from lightning_tfm.model.norms import RMSNorm\n\n\nclass Mine(RMSNorm):\n    pass\n"})
    before, file = identity(top), tmp_path / top / "mine.py"
    file.write_text(file.read_text().replace("model.norms", "model.norms_and_more"))
    assert identity(top) == before


def test_a_study_of_an_earlier_version_s_classes_is_told_from_one_whose_code_changed(made, tmp_path: Path) -> None:
    top = made({"mine.py": CLASS})
    study = table(top)
    old = save(replace(study, classes={path: "a" * 64 for path in study.classes}), tmp_path)
    assert load_as(Ablation, tmp_path, "own").cells() == old.cells()
    with pytest.raises(UserError, match=r"Mine are by the rules of an earlier version.*own name with --name"):
        save(study, tmp_path)


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
    (folder / f"{name}.py").write_text(
        f"import {name}_helper\nimport numpy\n\n\nclass Mine:\n    x = {name}_helper.x\n"
    )
    (folder / f"{name}_helper.py").write_text("x = 1\n")
    base = Experiment()
    mine = replace(base, model=replace(base.model, feed_forward=f"{name}.Mine"))
    before = user_classes(mine)
    assert list(reachable_sources([name])) == [f"{name}_helper"]
    (folder / f"{name}_helper.py").write_text("x = 2\n")
    assert user_classes(mine) != before


def test_two_spellings_of_one_experiment_have_one_name() -> None:
    def name(feed_forward: str, P_drop: float) -> str:
        base = Experiment()
        e = replace(base, model=replace(base.model, feed_forward=feed_forward, P_drop=P_drop))
        return training_hash(training_identity(e, "t", dict.fromkeys(own_classes(e).values(), "source")))

    assert name("m.X", 0.0) == name("m:X", 0.0) == name("m.X", -0.0) != name("m.Y", 0.0)


def test_a_class_in_the_working_directory_is_found_by_whatever_needs_it(made, tmp_path, monkeypatch):
    """Commands that only read a run, too: export, translate, test."""
    top = made({"mine.py": CLASS})
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"must derive from"):
        find_scheme(f"{top}.mine.Mine")
    assert f"{top}.mine" in sys.modules
