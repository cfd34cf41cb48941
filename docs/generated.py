"""The pages that nobody writes by hand: the reference, from the code, and copies of what lies outside docs/.

Links in the sources are those of the repository, so that they work where it is browsed; `inside` turns them to the
pages.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

from lightning_tfm.cli import arguments
from lightning_tfm.cli.main import VERBS
from lightning_tfm.config import ADDED, IDENTIFYING, WORDS, Data, Evaluation, Hardware, Miniature, Model, Training
from lightning_tfm.runs.outcome import meanings

SECTIONS = {
    "model": Model,
    "data": Data,
    "training": Training,
    "evaluation": Evaluation,
    "miniature": Miniature,
    "trainer": Hardware,
}


ROOT = Path(__file__).parents[1]
COPIED = {
    "README.md": "index",
    "NOTES.md": "also/notebook",
    "ARCHITECTURE.md": "also/architecture",
    "experiments/results/miniature/table.md": "also/table-miniature",
    "experiments/results/tatoeba/table.md": "also/table-tatoeba",
    "experiments/results/manpages/table.md": "also/table-manpages",
}
"""Markdown outside docs/ -> the page that shows it"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]+)?\)")


def write(docs: Path) -> None:
    """Write the generated pages below `docs`, those that did not change left alone."""
    pages = {"reference/fields": fields_page(), "reference/verbs": verbs_page(), "reference/codes": codes_page()}
    pages |= {page: copied(name, page) for name, page in COPIED.items() if page.startswith("also/")}
    for page, text in pages.items():
        path = docs / f"{page}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def copied(name: str, page: str) -> str:
    """A file of the repository with its links as they lead from `page`; a title where it has none."""
    here, there = (ROOT / name).parent, (ROOT / "docs" / page).parent
    text = (ROOT / name).read_text(encoding="utf-8")
    text = LINK.sub(lambda m: f"{m[1]}[{m[2]}]({os.path.relpath(here / m[3], there)}{m[4] or ''})", text)
    return text if text.startswith("# ") else f"# {name}\n\n{text}"


def inside(page: str, text: str) -> str:
    """`text` with links to what `COPIED` shows led to its page, and those to folders left as words."""
    here = (ROOT / "docs" / page).parent

    def turned(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / link[3]))
        name = target.relative_to(ROOT).as_posix()
        if name in COPIED:
            return f"[{link[2]}]({os.path.relpath(ROOT / 'docs' / COPIED[name], here)}.md)"
        return link[2] if target.is_dir() else link[0]

    return LINK.sub(turned, text)


# --- fields ---


def fields_page() -> str:
    """One table for each section of an experiment."""
    head = [
        "# Fields of an experiment",
        "",
        "Every field is a key in a YAML file (`model: {h: 16}`) and an option of the command line (`--model.h 16`).",
        "Defaults are the paper's base model. The last column says where a value enters the identity of a run:",
        "",
        "- **run**: it decides the weights, so it is part of the hash that names the run's folder.",
        "- **run, where it acts**: the same, but only where it differs from its default and can act.",
        "- **through the text**: it decides which pieces are trained on; their fingerprint is part of the run's hash.",
        "- **scores**: it decides the scores; changing it trains nothing again.",
        "- **no**: it decides how long a run takes, and nothing else.",
        "",
    ]
    return "\n".join([*head, *(line for name, cls in SECTIONS.items() for line in _section(name, cls))])


def _section(name: str, cls: Any) -> Iterator[str]:
    texts = arguments.documentation(cls.__module__)
    yield from (f"## {name}", "", cls.__doc__.splitlines()[0], "")
    yield from ("| field | type | default | meaning | identity |", "| --- | --- | --- | --- | --- |")
    for f in fields(cls):
        choices = get_args(f.type)
        kind = ", ".join(f"`{choice}`" for choice in choices) or WORDS[f.type]
        meaning = _cell(texts.get((cls.__name__, f.name), ""))
        yield f"| `{name}.{f.name}` | {kind} | `{json.dumps(f.default)}` | {meaning} | {identity(name, f.name)} |"
    yield ""


def identity(section: str, name: str) -> str:
    """Where a field enters the identity of a run."""
    if section == "trainer":
        return "no"
    if section == "miniature":
        return "run, as the sizes that come out"
    if section == "data":
        return (
            "run"
            if name == "max_len"
            else "scores, through the text"
            if name in ("dev", "test")
            else "through the text"
        )
    if f"{section}.{name}" in ADDED:
        return "run, where it acts"
    assert name in IDENTIFYING[SECTIONS[section]], f"{section}.{name} enters no hash"
    return "scores" if section == "evaluation" else "run"


def _cell(text: str) -> str:
    """A docstring within a cell of a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"(<[^>]+>|\*)", r"\\\1", text)


# --- verbs ---


class _Stop(Exception):
    """Raised with a verb's parser where it would begin to parse."""


def parser_of(verb: str) -> arguments.Parser:
    """The parser that a verb builds, the verb stopped before it does anything."""

    def stop(self: arguments.Parser, *ignored: Any) -> None:
        raise _Stop(self)

    with patch.object(arguments.Parser, "check_options", stop):
        try:
            import_module(f"lightning_tfm.cli.{VERBS[verb][0]}").main(verb, [])
        except _Stop as stopped:
            (parser,) = stopped.args
            return parser
    raise AssertionError(f"{verb} builds no parser")


def verbs_page() -> str:
    """One part for each verb: what it does and its own options."""
    head = [
        "# Verbs",
        "",
        "`lightning-tfm VERB --help` prints the same. Verbs that take an experiment also take `--config FILE`,",
        "`--row`, `--rows`, `--seed`, `--print_config` and an option for every [field](fields.md); these are not",
        "repeated here.",
        "",
    ]
    return "\n".join([*head, *(line for verb in VERBS for line in _verb(verb))])


def codes_page() -> str:
    """Every exit code."""
    rows = [f"| {code} | {_cell(text)} |" for code, text in sorted(meanings().items())]
    return "\n".join(["# Exit codes", "", "| code | meaning |", "| ---: | --- |", *rows, ""])


def own_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Arguments of a verb, without those that every verb with an experiment has."""
    common = {"config", "row", "rows", "seed", "print_config", "help", "given"}
    sections = tuple(f"--{name}." for name in SECTIONS)
    return [
        action
        for action in parser._actions
        if not {option.removeprefix("--") for option in action.option_strings} & (common | {"h", "-h"})
        and not any(option.startswith(sections) for option in action.option_strings)
    ]


def _verb(verb: str) -> Iterator[str]:
    parser = parser_of(verb)
    names = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    takes = [section for section in SECTIONS if any(name.startswith(f"{section}.") for name in names)]
    yield from (f"## {verb}", "", f"{VERBS[verb][1][0].upper()}{VERBS[verb][1][1:]}.", "")
    if "config" in names:
        yield from ("It takes an experiment: `--config`, `--row` and every [field](fields.md).", "")
    elif takes:
        yield from (f"It takes the [fields](fields.md) of {', '.join(takes)}.", "")
    yield from ("| argument | meaning |", "| --- | --- |")
    for action in own_options(parser):
        words = parser._get_formatter()._format_action_invocation(action)
        text = parser._get_formatter()._expand_help(action) if action.help else ""
        yield f"| `{words.replace('|', chr(92) + '|')}` | {_cell(text)} |"
    yield ""
