"""What ships is one class and one line: a part of each kind, a metric and a verdict are added to a copy of the tree,
nothing else is touched, and whatever counts, draws, exports, names, documents, checks or shows them knows them."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tests.helpers.calling import Call
from tests.helpers.tiny import forget_ours
from tests.testing.test_model_suites import Attention

ROOT = Path(__file__).parents[1]
PARTS = {  # kind -> name of the part, its module, its line, its source
    kind: (name, module, *text.split("\n", 1))
    for kind, name, module, text in re.findall(
        r"(?ms)^# --- (\w+): (\w+) in (\S+) ---\n(.*?)(?=^# ---|\Z)", (ROOT / "tests/parts.txt").read_text()
    )
}
METRIC, VERDICT = PARTS.pop("METRICS"), "\n".join(PARTS.pop("VERDICTS")[2:])
ONE_HEAD = f"\n{inspect.getsource(Attention).replace('class Attention', 'class OneHead')}"
MEASURED = """
from pathlib import Path
from tests.helpers.studies import Generator
from tests.report.tables.test_metrics import printed, views

root = Path("results")
Generator(root, ["base", "A-h1"], [1, 2, 3, 4, 5]).write_all()
assert "10 runs have matched" in printed(root, "validate", "made", "--add", "matched")
assert [name for name, text in views(root).items() if "matched" not in text] == [], "not in every format"

from lightning_tfm.report.study_report import make
from lightning_tfm.report.tables.main_table import table_lines
from lightning_tfm.report.wording import verdict, verdict_words

verdict.judge = lambda *_, **__: verdict.RowVerdict(verdict_words.Verdict.CURIOUS, "")
tested = {name: text for name, text in views(root).items() if name not in ("table csv", "table json")}
tested["W&B"] = str(table_lines(make("made", root).summary))
assert [name for name, text in tested.items() if ("sharp" if "latex" in name else "curious") not in text] == []
assert "1 change is curious" in tested["page"], "in its sentence, too"
"""
KNOWN = """
from docs import generated
from lightning_tfm import registry
from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, override
from lightning_tfm.inference.export import unlike_ctranslate2
from lightning_tfm.model.size import count_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.report.analyses.architecture import architecture
from tests.helpers import held

assert registry.__file__.startswith(ROOT), registry.__file__
sizes = {"N": 2, "d_model": 16, "d_ff": 23, "h": 2, "d_k": 8, "d_v": 8}
base = override(Experiment(), {f"model.{key}": value for key, value in sizes.items()}, "")
assert not unlike_ctranslate2(base.model)
page = generated.fields_page()
for kind, name in NAMES.items():
    found = getattr(registry, kind)
    e = override(base, {found.field: name}, "")
    assert name in page, f"{name} is not in the reference"
    if found.field.startswith("model."):
        built = sum(p.numel() for p in Transformer(e.model, 31).parameters())
        assert count_parameters(e.model, 31)["total"] == built, name
        assert found[name].label in architecture(e).lower(), f"{name} is not drawn"
        assert any(name in fault for fault in unlike_ctranslate2(e.model)), f"{name} would be exported"
own = override(base, {"model.positions": held.NAME}, "")
assert any(held.NAME in fault for fault in unlike_ctranslate2(own.model)), "not declared to be a table"
main(["fit", "--help", "all"])  # ends the process
"""
SUITES = "model/test_positions.py model/test_size.py training/test_optimizers.py data/sources/test_files.py"
COVERED = {"NORMS": 1, "FEED_FORWARDS": 2, "SCHEMES": 3, "LAYERS": 4, "ATTENTIONS": 2, "OPTIMIZERS": 2, "CORPORA": 1}
COVERED |= {"SCHEDULES": 1}
"""kind -> how many tests of these files are about a part because it ships"""


def run(copy: Path, *argv: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "1000"}
    done = subprocess.run([sys.executable, *argv], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with one more part of each kind."""
    to = tmp_path_factory.mktemp("tree")
    unused = shutil.ignore_patterns("results", "regression")
    for folder in ("lightning_tfm", "tests", "docs", "experiments", "sweeps"):
        shutil.copytree(ROOT / folder, to / folder, ignore=unused)
    shutil.copy(ROOT / "pyproject.toml", to)
    parts = to / "lightning_tfm" / "registry.py"
    for kind, (_, module, line, source) in PARTS.items():
        with (to / "lightning_tfm" / module).open("a") as file:
            file.write(f"\n{source or ONE_HEAD}")
        text, found = re.subn(rf"(?ms)^({kind} = Kind\(.*?)^\)$", rf"\1    {line}\n)", parts.read_text())
        assert found == 1, kind
        parts.write_text(text)
    _, module, value, source = METRIC
    with (to / "lightning_tfm" / module).open("a") as file:
        file.write(f"\n{source}")
    metrics = to / "lightning_tfm" / "metrics.py"
    text, found = re.subn(r"(?m)^(METRICS = .*)\)$", rf"\1, {value})", metrics.read_text())
    assert found == 1
    metrics.write_text(text)
    words = to / "lightning_tfm" / "report" / "wording" / "verdict_words.py"
    words.write_text(words.read_text().replace("    UNDECIDED = (\n", f"{VERDICT}    UNDECIDED = (\n", 1))
    return to


def test_new_parts_are_counted_drawn_refused_and_listed_and_a_metric_and_a_word_show_in_every_format(copy):
    names = {kind: name for kind, (name, *_) in PARTS.items()}

    def in_the_copy() -> None:
        forget_ours()
        for name in [name for name in sys.modules if name.startswith(("tests", "docs"))]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, AssertionRewritingHook)]
        sys.path.insert(0, str(copy))
        os.environ["COLUMNS"] = "1000"
        exec(MEASURED + KNOWN, {"ROOT": str(copy), "NAMES": names})

    said = Call(in_the_copy, folder=copy).wait()
    assert said.code == 0, said.err
    assert [name for name in names.values() if not re.search(rf"\b{name}\b", said.out)] == [], "not in --help"


@pytest.mark.long
def test_a_new_part_is_held_to_the_suites_of_what_ships(copy: Path) -> None:
    any_of = " or ".join(name for name, *_ in PARTS.values())
    files = [f"tests/{name}" for name in SUITES.split()]
    said = run(copy, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-k", any_of, *files)
    for kind, (name, *_) in PARTS.items():
        passed = {line.partition("[")[0] for line in said.splitlines() if name in line and "PASSED" in line}
        assert len(passed) == COVERED[kind], (kind, passed)
