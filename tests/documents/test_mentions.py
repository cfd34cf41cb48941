"""What documents say in passing: commands, options, files and links that they name are there. Nothing is run."""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import tomllib
from functools import cache

import pytest

from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.errors import UserError
from lightning_tfm.yaml_files import FOLDERS, find_file, shipped_folder
from tests.helpers.documents import DOCUMENTS, ROOT, inline


def check_make(line: str, place: object = None) -> None:
    """The target is there, and what it runs is a command of ours that parses, or pytest."""
    program, target, *variables = shlex.split(line)
    command = [program, "--dry-run", "--always-make", "--no-print-directory", target, *variables]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    recipe = done.stdout.splitlines()[-1]
    if target == "install":
        assert "pip install" in done.stdout and "activate" in recipe, done.stdout
    elif "lightning-tfm" in recipe:
        check_parsed(recipe[recipe.index("lightning-tfm") :])
    else:
        assert {"pytest", "benchmarks", "sphinx", "check", "wheel"} & set(done.stdout.split()), done.stdout


def check_parsed(line: str) -> None:
    """The parser takes it, and the files that it names are there. Nothing is run."""
    program, verb, *argv = shlex.split(line)
    assert program == "lightning-tfm" and verb in VERBS, line
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main([verb, *argv, "--print_config"])
    assert code == 0, f"{line}: {said.getvalue()}"


@cache
def options_of(verb: str) -> set[str]:
    said = io.StringIO()
    kinds = [["--to", "safetensors"], ["--to", "csv"]] if verb == "export" else [[]]
    for kind in kinds:
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
            main([verb, *kind, "--help", "all"])
    return set(re.findall(r"--[\w.-]+", said.getvalue()))


NOT_IN_HELP = {"--extra-index-url", "--help"}


def check_mentioned(code: str) -> None:
    """Verbs, options, files, modules and extras that a piece of code names are there."""
    words = shlex.split(code.removeprefix("lightning-tfm ").replace("COMMAND", "fit"))
    if code.startswith("make "):
        check_make(code)
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"lightning_tfm\[([\w-]+)\]", code)) <= extras.keys(), code
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), code
    elif words[0] == "pytest":
        assert (ROOT / words[-1]).exists(), code
    elif words[0] in VERBS or words[0].startswith("--"):
        verbs = [words[0]] if words[0] in VERBS else [*VERBS]
        known = NOT_IN_HELP.union(*map(options_of, verbs))
        for word in words:
            if word.startswith("--"):
                assert word in known, f"{' and '.join(verbs[:3])} have no {word}: {code}"
            elif re.fullmatch(r"(experiments|sweeps)/.*", word):
                find_file(word)
    else:
        assert not code.startswith("lightning-tfm "), f"no such verb: {code}"


def worth(code: str) -> bool:
    """Whether code in passing says something to check: an option, or a command."""
    return " " in code or code.startswith("--")


@pytest.mark.parametrize("code", sorted({code for text in DOCUMENTS.values() for code in inline(text) if worth(code)}))
def test_mentioned(code):
    check_mentioned(code)


def heads() -> list[tuple[str, str]]:
    """File and command of each line in the head of a shipped file that says how it is run; brackets are optional."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in shipped_folder(folder).glob("*.yaml")):
        for line in re.findall(r"^# (?:Command|Ours) +(.*)$", path.read_text(), re.MULTILINE):
            parts = re.sub(r"\(.*?\)|[\[\]]", "", line).split(";")
            found += [(path.name, part.strip().removeprefix("all rows: ")) for part in parts]
    return found


# by ratios: their texts are made to be counted, which takes seconds
LONG = {
    ("ladder.yaml", "lightning-tfm sweep sweeps/ladder.yaml --seeds 71-73"),
    (
        "ratios.yaml",
        "lightning-tfm sweep sweeps/table3.yaml --name r2-builtin --config experiments/ratios.yaml --seeds 71-73",
    ),
}


@pytest.mark.parametrize(
    ("file", "line"), [pytest.param(*head, marks=[pytest.mark.long] * (head in LONG)) for head in heads()]
)
def test_command_in_the_head_of_a_file(file, line):
    check_mentioned(line)
    if line.startswith(("lightning-tfm fit", "lightning-tfm sweep", "lightning-tfm tune")):
        check_parsed(line)
        assert file.partition(".")[0] in line, f"{file} names the command of another file"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", DOCUMENTS[name]):
        path, _, heading = "".join(target).partition("#")
        if path.startswith("https://"):
            continue
        there = (ROOT / name).parent / path if path else ROOT / name
        assert there.exists(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, path + heading


def test_the_readme_is_read_in_five_minutes():
    assert len(DOCUMENTS["README.md"].splitlines()) <= 120


@pytest.mark.parametrize(
    "code",
    [
        "lightning-tfm fti",
        "make table4",
        "pip install 'lightning_tfm[paper]'",
        "python -m benchmarks.nothing",
        "pytest -m long tests/system/test_nothing.py",
        "export RUN --two safetensors",
        "--modle.h 3",
        "lightning-tfm sweep sweeps/table4.yaml",
    ],
)
def test_a_wrong_mention_is_seen(code):
    with pytest.raises((AssertionError, UserError, subprocess.CalledProcessError, ModuleNotFoundError)):
        check_mentioned(code)
