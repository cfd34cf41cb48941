"""The pages that nobody writes by hand: the reference, from the code, and copies of what is kept outside docs/.

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
from inspect import Signature, getdoc, signature
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import yaml

import lightning_tfm
from lightning_tfm import results
from lightning_tfm.cli import arguments
from lightning_tfm.cli.main import VERBS
from lightning_tfm.config import ADDED, IDENTIFYING, WORDS, Data, Evaluation, Hardware, Miniature, Model, Training
from lightning_tfm.runs import record
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
    "ARCHITECTURE.md": "also/architecture",
    "CONTRIBUTING.md": "also/contributing",
    "CHANGELOG.md": "also/changelog",
    "docs/howto/notebook.ipynb": "also/in-a-notebook",
}
TABLES = sorted(ROOT.glob("experiments/results/*/table.md"))
COPIED |= {str(path.relative_to(ROOT)): f"also/table-{path.parent.name}" for path in TABLES}
"""what is no page of docs/ -> the page that shows it"""
DIARY = "NOTES.md"
"""the diary: read in the repository alone"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]+)?\)")


def write(docs: Path) -> None:
    """Write the generated pages below `docs`, leaving unchanged ones untouched."""
    pages = {"reference/fields": fields_page(), "reference/commands": verbs_page(), "reference/codes": codes_page()}
    pages |= {"reference/files": files_page(), "reference/records": records_page(), "reference/storage": storage_page()}
    pages["reference/python"] = python_page()
    pages |= {page: copied(name, page) for name, page in COPIED.items() if page.startswith("also/")}
    for page, text in pages.items():
        path = docs / f"{page}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def python_page() -> str:
    """The names that `import lightning_tfm` offers, and what its studies and runs answer, by their docstrings."""
    lines = [
        "# Python",
        "",
        "What `import lightning_tfm as lt` offers, used [in a notebook](../also/in-a-notebook.md) and [in your own",
        "Trainer](../howto/python.md). These names and what is listed of them are stable: they change only with a line",
        "in the changelog. Everything else below `lightning_tfm.` may move.",
    ]
    ours: list[Any] = [results.StudyResults, results.RunResults]
    for found in [*(getattr(lightning_tfm, name) for name in sorted(lightning_tfm._HOME)), *ours]:
        name = found.__name__
        lines += ["", f"## {name}", "", f"```text\n{name}{_signature(found)}\n```", "", _about(found)]
        for key, member in vars(found).items() if found in ours else ():
            if not key.startswith("_") and getattr(member, "__doc__", None):
                call = f"{key}{_signature(member)}" if callable(member) else key
                lines += ["", f"`.{call}`", f": {_about(member)}"]
    return "\n".join(lines) + "\n"


def _signature(found: Any) -> str:
    """Without types, which the reference of fields has, and without `self`."""
    given = [p.replace(annotation=p.empty) for p in signature(found).parameters.values() if p.name != "self"]
    return str(Signature(given))


def _about(found: Any) -> str:
    return " ".join((getdoc(found) or "").split())


def copied(name: str, page: str) -> str:
    """A file of the repository with its links as they lead from `page`; a title where it has none."""
    here, there = (ROOT / name).parent, (ROOT / "docs" / page).parent
    text = (ROOT / name).read_text(encoding="utf-8")
    text = "\n".join(_of_cells(json.loads(text)["cells"])) if name.endswith(".ipynb") else text
    text = LINK.sub(lambda m: f"{m[1]}[{m[2]}]({os.path.relpath(here / m[3], there)}{m[4] or ''})", text)
    return text if text.startswith("# ") else f"# Table: {_title(here.name)}\n\n{text}"


def _of_cells(cells: list[dict[str, Any]]) -> Iterator[str]:
    """A notebook's cells with what they put out, as Markdown."""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n"
            continue
        shell = source.startswith("!")
        yield f"```{'sh' if shell else 'python'}\n{source.removeprefix('!')}\n```\n"
        for output in cell["outputs"]:
            found = output.get("data", {"text/plain": output.get("text")})
            kind = next(kind for kind in ("text/html", "image/svg+xml", "text/plain") if kind in found)
            text = "".join(found[kind])
            shown = f'<div class="output">\n{text}\n</div>' if kind != "text/plain" else text.rstrip("\n")
            yield f"```{'text' if kind == 'text/plain' else '{raw} html'}\n{shown}\n```\n"


def _title(folder: str) -> str:
    """Of a study of experiments/results, as its sweep has it; the folder's name where it has none."""
    sweep = "table3" if folder.startswith("miniature") else folder
    beside = ROOT / "sweeps" / f"{sweep}.study.yaml"
    found = yaml.safe_load(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    return str(found.get("title", folder))


def inside(page: str, text: str) -> str:
    """`text` with links to what `COPIED` shows led to its page, and those to folders and the diary left as words.

    Beside a forest stands its narrow drawing, where there is one. A heading of reference/index.md, which the
    repository has, marks the place of the page of that name, written here.
    """
    here = (ROOT / "docs" / page).parent

    def turned(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / link[3]))
        name = target.relative_to(ROOT).as_posix()
        if name in COPIED:
            return f"[{link[2]}]({os.path.relpath(ROOT / 'docs' / COPIED[name], here)}.md)"
        if name == "docs/reference/index.md" and link[4]:
            return f"[{link[2]}]({os.path.relpath(target.parent / link[4][1:], here)}.md)"
        narrow = target.with_name("forest-narrow.svg")
        if link[1] and target.name.startswith("forest") and narrow.is_file():  # own.css shows the one that has room
            return f"{link[0]} ![{link[2]}]({os.path.relpath(narrow, here)})"
        return link[2] if target.is_dir() or name == DIARY else link[0]

    if page == "reference/index":
        text = re.sub(r"^## (\w+)$", lambda m: f"## [{m[1]}]({m[1].lower()}.md)", text, flags=re.MULTILINE)
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
        "- **through the text**: it decides which tokens are trained on; their fingerprint is part of the run's hash.",
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
        "# Commands",
        "",
        "`lightning-tfm COMMAND --help` prints the same. Commands that take an experiment also take `--config FILE`,",
        "`--row`, `--rows`, `--seed`, an option for every [field](fields.md) and, unless they take a trained run,",
        "`--print_config`; these are not repeated here.",
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


# --- files ---

Described = dict[str, str]
RUN: Described = {
    "identity.json": "what the run's hash is the hash of",
    "experiment.json": "the experiment at the sizes that are trained; `Experiment` of lightning_tfm/config.py",
    "cell.json": "the row and seed that it was last asked for as; no part of its identity",
    "attempts/NUMBER.json": "who works, or worked, on the run: host, process, time. The highest number owns it",
    "attempts/NUMBER.beat": "touched every ten seconds by the owner",
    "attempts/lock": "decides which of two claimers wins",
    "attempts/NUMBER.stop": "asks the owner to stop: a search found its trial unpromising",
    "attempts/now": "touched by who asks whether an owner elsewhere lives: heartbeats go by the file server's clock",
    "progress.json": "its step, phase and rate",
    "metrics.jsonl": "one line every `trainer.log_every` steps (loss, nll, lr, grad_norm, target_tokens, seconds) and "
    "at every validation (dev_nll, dev_ppl, and in dev the text's fingerprint)",
    "samples.jsonl": "how a few dev sentences were translated at every validation",
    "checkpoints/step-NUMBER.ckpt": "Lightning's checkpoints, the last two: weights, optimiser, position in the data; "
    "owner and sha256 are in the archive's comment, as in snapshots",
    "checkpoints/step-NUMBER.damaged": "a checkpoint that was passed over: its checksum does not match",
    "snapshots/step-NUMBER.pt": "only weights, where `training.average_last` asks for them",
    "result.json": "what a finished run leaves; its presence means finished",
    "outcome.json": "how the last attempt ended, where it did not finish",
    "log.txt": "what the run's process printed, tracebacks included",
    "scores/EVALUATION/SPLIT.json": "scores of a text under one way of decoding and scoring",
    "scores/EVALUATION/SPLIT.hyp.txt": "the translations, line by line",
    "scores/EVALUATION/SPLIT.sentences.tsv": "nll, tokens and BLEU's counts of every sentence: what tests resample",
    "report/attention.json": "attention weights on a few dev sentences (`report --collect`)",
    "report/calibration.json": "how often the likeliest token is right (`report --collect`)",
    "report/positions.json": "what its positional scheme does (`report --collect`, rows of positions)",
    "report/softmax.json": "how far its softmaxes are saturated (`report --collect`, rows of scores)",
    "report/heads.json": "what each head is worth (`inspect`)",
    "report/syntax.json": "what heads look at, beside gold trees (`experiments/syntax.py`)",
    "report/heads.svg": "the same as a picture",
    "report/beams.json": "BLEU and seconds by the width of the beam (`inspect`)",
    "profile/trace.json": "a trace of ten steps (`fit --profile`)",
    "profile/operators.txt": "its operators by time",
    "wandb.json": "under which W&B run all of it has arrived",
    "safetensors/FILE": "the trained model for other programs (`export`)",
    "ctranslate2/FILE": "the same, for CTranslate2",
    "csv/FILE": "its curve and scores (`export --to csv`)",
    "tensorboard/FILE": "the same (`export --to tensorboard`)",
}
"""file of <out>/runs/<start of its training hash>/ -> what it is"""
STUDY: Described = {
    "study.json": "the study: base, rows and seeds, or the space of a search",
    "workers.json": "who works on it, for `resume`",
    "journal.log": "the queue, an Optuna journal, unless a database holds it",
    "journal.log.NAME.exclusive": "lock of the queue",
    "journal.log.flock": "lock of the journal",
    "storage": "address of the study's database, without the password",
    "shared": "a token by which other machines see whether they share these files",
    ".study.lock": "lock of study.json",
    "cells/ROW/SEED.json": "which run is this cell",
    "table.md": "the table, as it was printed",
    "table.csv": "the table, a line a row",
    "table.json": "the table with agreement and claims",
    "report.html": "the page, whole in one file",
    "report-to-ROW.html": "the page against another reference (`report --reference`)",
    "compare.html": "`compare --format html`",
    "meta-analysis.html": "`meta-analysis --format html`",
    "scaling.html": "`scaling --format html`",
    "looks.json": "`--seeds auto`: interim looks, and what each added",
    "tuning.json": "`--tune`: what every row was tried at, and what it took",
    "layers.json": "Table 1 of the paper, measured (`report --collect`, rows of layer types; `layers --study`)",
    "trials.json": "a search: every trial",
    "trials.csv": "the same as a table",
    "importance.json": "a search: how much each parameter mattered",
    "best.yaml": "a search: its best trial as an experiment file",
    "best-TRIAL.yaml": "the same where there are several objectives",
    "mirror.log": "what went wrong with W&B",
    "wandb/FILE": "W&B's own files, offline",
    "slurm/FILE": "output of the jobs",
    "csv/FILE": "curves and scores (`export --to csv`)",
    "tensorboard/FILE": "the same (`export --to tensorboard`)",
}
"""file of <out>/studies/<name>/ -> what it is"""
DATA: Described = {
    "card.json": "the data card: counts, fingerprints, what was left out and why",
    "checksums.json": "of every file beside it (`data verify`)",
    "tokenizer.model": "SentencePiece's model",
    "pieces.txt": "in its place the vocabulary, by id, of a text that is already in tokens (`data.tokenizer: pieces`)",
    "SPLIT.SIDE.ids": "tokens of all sentences in a row, memory-mapped",
    "SPLIT.SIDE.offsets": "where each sentence begins",
    "SPLIT.SIDE.txt": "raw lines of dev and test, tokens joined",
}
"""file of <out>/data/<start of its hash>/ -> what it is"""


def files_page() -> str:
    """Every file of a results folder."""
    head = [
        "# Files of a results folder",
        "",
        "All of it is under `--out`, by default `results`. Capitals are placeholders for names.",
        "",
    ]
    parts = {
        "A run: `runs/HASH/`": (
            "Named by the first 16 hex digits of its training hash. One run may be a cell of many studies.",
            RUN,
        ),
        "A study: `studies/NAME/`": ("Safe to copy; without the runs it is only a plan.", STUDY),
        "Prepared data: `data/HASH/`": ("Shared by all runs on the same text and settings.", DATA),
    }
    return "\n".join(
        [*head, *(line for title, (about, files) in parts.items() for line in _files(title, about, files))]
    )


def _files(title: str, about: str, files: Described) -> Iterator[str]:
    yield from (f"## {title}", "", about, "", "| file | what it is |", "| --- | --- |")
    yield from (f"| `{name}` | {_cell(text)} |" for name, text in files.items())
    yield ""


def described(path: str) -> bool:
    """Whether a file, relative to the results folder, is one that the page describes."""
    kind, _, rest = path.partition("/")
    known, name = {"runs": RUN, "studies": STUDY, "data": DATA}.get(kind, {}), rest.partition("/")[2]
    patterns = (re.sub(r"[A-Z]{3,}", "\0", file) for file in known)
    return any(re.fullmatch(re.escape(pattern).replace("\0", ".+"), name) for pattern in patterns)


# --- records ---

RECORDS = {
    "result.json": (record.RunRecord, record.Parameters, record.Seconds, record.TrainSeconds),
    "its machine and texts": (record.Machine, record.Git, record.Texts),
    "scores/EVALUATION/SPLIT.json": (record.Score, record.Measure),
    "progress.json and outcome.json": (record.Progress, record.Outcome),
}


def records_page() -> str:
    """The fields of a run's records."""
    head = [
        "# Records of a run",
        "",
        "What a finished run leaves is `result.json`, a `RunRecord`. Fields are keys of the file. Numbers are as",
        "computed, not rounded. Reports, tables and W&B are made from these records, never the other way round.",
        "",
    ]
    return "\n".join([*head, *(line for title, classes in RECORDS.items() for line in _record(title, classes))])


def _record(title: str, classes: tuple[Any, ...]) -> Iterator[str]:
    texts = arguments.documentation(record.__name__)
    yield from (f"## {title}", "")
    for cls in classes:
        yield from (f"### {cls.__name__}", "", cls.__doc__.splitlines()[0], "")
        yield from ("| field | type | meaning |", "| --- | --- | --- |")
        for f in fields(cls):
            kind = getattr(f.type, "__name__", None) if isinstance(f.type, type) else str(f.type)
            yield f"| `{f.name}` | `{str(kind).replace('|', 'or')}` | {_cell(texts.get((cls.__name__, f.name), ''))} |"
        yield ""


# --- storage ---

TRIAL = {
    "row": "row of the cell, or number of the trial",
    "seed": "seed of the cell",
    "run": "training hash: the folder of the run is named by its start",
    "cost": "predicted FLOPs; the longest waiting cell is taken first",
    "change": "of a search: dotted field -> value",
    "attempt": "which try of the cell this is, from 1",
    "tries": "outcome -> how many tries ended so",
    "owner": "who works on it: host, process, start of the machine",
    "outcome": "how the try ended, where it did not finish",
    "dropped": "the row is hidden (`study hide`): its cell is not shown",
    "retry_of": "number of the trial that this one is a copy of",
    "beat": "when the owner last showed that it lives; seconds since 1970",
    "reason": "why it failed, was stopped, or must not run",
    "final": "true where a failed cell is not tried again",
    "record": "the whole result.json, where machines share no files",
    "pruned_by": "step at which the search's rule stopped it",
    "stopped_at": "step at which training had stopped",
}
"""user attribute of a trial -> what it holds"""
NOTES = {
    "definition": "study.json, for machines that do not see the folder",
    "shared": "the token of the file of that name",
    "exhausted": "every point of the space has been tried",
    "more runs to come": "true while `--seeds auto` may add cells: those who have joined wait",
}
"""user attribute of a study -> what it holds"""


def storage_page() -> str:
    """What is in the journal or the database."""
    lines = [
        "# Storage of a study",
        "",
        "The queue of a study is an Optuna study in Optuna's own schema, in the journal file of its folder or in",
        "PostgreSQL (`--storage`), so any program for Optuna reads it. A trial is one try at a cell: `WAITING`,",
        "`RUNNING`, `COMPLETE` (finished; its value is dev perplexity, or the objectives of a search), `PRUNED`",
        "(stopped early) or `FAIL`. A try that was lost, handed back or failed stays `FAIL`, and a copy of it waits;",
        "the newest trial speaks for its cell. Who may write into a run is decided by the run's folder, not here.",
        "",
        "## User attributes of a trial",
        "",
        "| key | what it holds |",
        "| --- | --- |",
        *(f"| `{key}` | {_cell(text)} |" for key, text in TRIAL.items()),
        "",
        "## User attributes of the study",
        "",
        "| key | what it holds |",
        "| --- | --- |",
        *(f"| `{key}` | {_cell(text)} |" for key, text in NOTES.items()),
        "",
    ]
    return "\n".join(lines)
