"""The package: its words, and how it travels."""

import ast
import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lightning_tfm.cli.arguments import documentation
from lightning_tfm.config import Model
from lightning_tfm.plural_words import plural
from lightning_tfm.yaml_files import FOLDERS

PACKAGE = Path(__file__).parents[1] / "lightning_tfm"
HASHED = {f"data/{name}.py" for name in ("builtin", "lexicon", "chains", "trees", "treebank")}
"""their sources are part of the names of stores: not a byte changes"""
WORDS = Path(__file__).with_name("words.txt").read_text().splitlines()[1:]
INSTEAD = dict(line.split(" -> ") for line in WORDS)


def private(text: str) -> list[str]:
    return [f"{found[0]!r}: say {say}" for word, say in INSTEAD.items() for found in re.finditer(word, text, re.I)]


def said(source: str) -> Iterator[str]:
    """Strings of a module that have a blank in them and are no docstrings: what people may read."""
    tree = ast.parse(source)
    bodies = [body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)]
    documents = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            if " " in node.value.strip():
                yield node.value


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if name(path) not in HASHED]
TEMPLATES = sorted(PACKAGE.rglob("*.html"))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_messages_are_in_the_field_s_words(path):
    kept = {"other pieces"}  # a key of reports in JSON
    assert not private("\n".join(text for text in said(path.read_text(encoding="utf-8")) if text not in kept))


@pytest.mark.parametrize("path", TEMPLATES, ids=name)
def test_pages_are_in_the_field_s_words(path):
    text = re.sub(r"{[{%#].*?[}%#]}|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not private(text)


@pytest.mark.parametrize("module", [Model.__module__, "lightning_tfm.config"])
def test_fields_are_explained_in_the_field_s_words(module):
    texts = documentation(module)
    assert len(texts) > 20
    assert not private("\n".join(texts.values()))


SHIPPED = sorted(path for folder in ("experiments", "sweeps") for path in (PACKAGE.parent / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_files_are_in_the_field_s_words(path):
    """Their comments, labels and questions; keys and values of fields stay."""
    text = path.read_text(encoding="utf-8")
    assert not private("\n".join(re.findall(r"#.*$|label: [^,}]*|^(?:title|question): .*$", text, re.MULTILINE)))


def test_a_private_word_is_seen():
    found = list(said('def f():\n    """A piece."""\n    raise E(f"{n} pieces a second")\n'))
    assert found == [" pieces a second"] and len(private(found[0])) == 1 and private("over the memory")
    assert not private("data.tokenizer=pieces")


@pytest.mark.parametrize(("n", "said"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (10_000, "10,000 runs")])
def test_one_is_singular(n, said):
    assert plural(n, "run") == said


def test_no_verb_counts_runs_threads_or_devices_without_their_number():
    """Where one is possible."""
    counts = re.compile(
        r"\{[^{}]*(?:len\(|count|runs|devices|get_num_threads)[^{}]*\} (?:runs|threads|devices|files)\b"
    )
    found = [
        line.strip()
        for path in (PACKAGE / "cli").glob("*.py")
        for line in path.read_text().splitlines()
        if counts.search(line)
    ]
    assert found == []


ROOT = Path(__file__).parents[1]


def test_every_package_is_listed():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "lightning_tfm").rglob("__init__.py")}
    assert listed == there | {f"lightning_tfm._files.{folder}" for folder in FOLDERS}


def test_constraints_are_exact_and_cover_what_we_ask_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    names = {name.lower().replace("_", "-") for name in pinned}
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    extras = [name for name in extras if not name.startswith(project["name"])]  # an extra made of others
    for requirement in project["dependencies"] + extras:
        assert requirement.split(">=")[0].split("[")[0].lower() in names, requirement
    assert not [version for version in pinned.values() if "+" in version]  # +cpu would tie them to one index


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def every_template() -> list[Path]:
    return [path for path in (ROOT / "lightning_tfm").glob("*/templates/**/*") if path.is_file()]


def test_every_template_is_package_data():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = {
        path
        for package, globs in tools["package-data"].items()
        for glob in globs
        for path in ROOT.joinpath(*package.split(".")).glob(glob)
    }
    assert len(every_template()) > 30 and set(every_template()) <= packed


UPLOT = {  # of the release 1.6.32, as its authors published it
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE.uPlot": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_what_others_wrote_is_as_they_published_it_with_their_licence():
    folder = ROOT / "lightning_tfm/dashboard/vendored"
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} == UPLOT
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "lightning_tfm/dashboard/vendored/LICENSE.uPlot" in project["project"]["license-files"]
    assert "vendored/*" in project["tool"]["setuptools"]["package-data"]["lightning_tfm.dashboard"]
    assert "uPlot" in (ROOT / "docs/howto/dashboard.md").read_text()


@pytest.mark.long
def test_a_wheel_works_outside_the_clone(tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    copy = tmp_path / "source"  # setuptools leaves build/ beside the sources
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(copy)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"lightning_tfm/_files/experiments/table3.yaml", "lightning_tfm/_files/sweeps/table3.yaml"} <= set(names)
    templates = [path.relative_to(ROOT).as_posix() for path in every_template()]
    templates += [path.relative_to(ROOT).as_posix() for path in (ROOT / "lightning_tfm/dashboard/templates").iterdir()]
    assert {"report.css", "report.js", "dashboard.css", "dashboard.js", "base.html"} < {
        Path(name).name for name in templates
    } and set(templates) <= set(names)
    assert {f"lightning_tfm/dashboard/vendored/{name}" for name in UPLOT} < set(names)
    assert [n for n in names if n.endswith("dist-info/licenses/lightning_tfm/dashboard/vendored/LICENSE.uPlot")]
    assert not [n for n in names if n.startswith(("experiments", "sweeps", "tests"))]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)], check=True)

    def run(*argv: str) -> str:
        code = "import sys, lightning_tfm; from lightning_tfm.cli.main import main\n"
        code += f"assert lightning_tfm.__file__.startswith({str(site)!r}), lightning_tfm.__file__\n"
        code += "sys.exit(main(sys.argv[1:]))"
        environment = os.environ | {"PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *argv], cwd=elsewhere, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "10 of 11 published counts" in run("table", "--params")
    small = ["--miniature.steps", "5000", "--training.warmup", "5", "--data.pairs", "800", "--trainer.threads", "1"]
    assert "dev (val): PPL" in run("fit", "--config", "experiments/miniature.yaml", "--row", "A-h1", *small)
