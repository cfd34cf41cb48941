"""ARCHITECTURE.md names files and symbols that exist, and the road from the command to the model in order."""

import ast
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lightning_tfm"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yaml|json)|(?:[\w.-]+/)+)(?::(\w+))?`", PAGE)))


def located(path: str) -> Path | None:
    return next((root / path for root in (ROOT / "lightning_tfm", ROOT) if (root / path).exists()), None)


def symbols(path: Path) -> set[str]:
    """What a module defines at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_page_names_enough_to_be_checked():
    assert len(NAMED) > 60 and sum(bool(symbol) for _, symbol in NAMED) > 35
    assert len(PAGE.splitlines()) <= 120


@pytest.mark.parametrize(("path", "symbol"), NAMED, ids=[":".join(pair) for pair in NAMED])
def test_what_the_page_names_exists(path, symbol):
    if path in ("result.json", "study.json"):  # files of a results folder
        return
    found = located(path)
    assert found is not None, f"there is no {path}"
    assert not symbol or symbol in symbols(found), f"{path} has no {symbol}"


@pytest.mark.parametrize("room", ["data", "queue", "report", "runs", "study"])
def test_a_large_room_says_which_file_is_of_which_theme(room):
    folder = ROOT / "lightning_tfm" / room
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    listed = "\n".join(line[21:] for line in said.splitlines()[2:])
    assert files == set(re.findall(r"\b[a-z]+[a-z_0-9]*\b", listed))


def test_no_folder_holds_more_than_twenty_files_lying_flat():
    """In the package and in its tests."""
    for top in (PACKAGE, ROOT / "tests"):
        flat = Counter(path.parent for path in top.rglob("*.py") if path.name != "__init__.py")
        assert not {str(folder): count for folder, count in flat.items() if count > 20}


def test_the_road_from_the_command_to_the_model_has_six_files_and_each_names_the_next():
    found = re.search(r"from the command to the model:\n(.*?)\n\n", PAGE, re.DOTALL)
    assert found is not None
    road = re.findall(r"`([\w/]+)\.py:(\w+)`", found.group(1))
    assert len(road) <= 6 and road[0][0].startswith("cli/") and road[-1] == ("model/transformer", "Transformer")
    for (here, _), (there, symbol) in itertools.pairwise(road):
        source = (ROOT / "lightning_tfm" / f"{here}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        module = f"lightning_tfm.{there.replace('/', '.')}"
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module]
        assert any(alias.name == symbol for node in imports for alias in node.names), f"{here} does not import {symbol}"
        assert len(re.findall(rf"\b{symbol}\b", source)) > 1, f"{here} does not use {symbol}"


MODULES = sorted(path for path in (ROOT / "lightning_tfm").rglob("*.py") if not {"model", "kernels"} & {*path.parts})


def test_no_function_outside_the_model_takes_more_than_eight_parameters():
    counts = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                counts[f"{path.name}:{node.name}"] = len([name for name in names if name not in ("self", "cls")])
    assert len(counts) > 900 and {name: count for name, count in counts.items() if count > 8} == {}


def test_what_is_signed_never_has_the_sign_of_a_zero():
    """A difference that rounds to nothing is +0.0: plural_words.signed, which writes signs, has a format with a z."""
    texts = {path: path.read_text(encoding="utf-8") for kind in ("*.py", "*.html") for path in PACKAGE.rglob(kind)}
    written = [(path.name, one) for path, text in texts.items() for one in re.findall(r"[:\"]\+z?\.", text)]
    assert ("plural_words.py", '"+z.') in written and [name for name, one in written if "z" not in one] == []
    assert sum("signed(" in text for text in texts.values()) > 5
