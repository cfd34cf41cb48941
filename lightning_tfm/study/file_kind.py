"""What kind of file a YAML file is, so that one of the wrong kind is named and sent where it belongs."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.yaml_files import YamlFile

KINDS = {
    "experiment": "an experiment file: give it with --config",
    "rows": "a file of rows: give it with --rows, and name its rows in a sweep file or with --row",
    "sweep": "a sweep file: lightning-tfm sweep FILE runs it, or tune where it is a search",
    "beside": "NAME.study.yaml, which is read by itself beside the sweep file NAME.yaml",
    "study": "the definition of a study: lightning-tfm resume NAME resumes it",
    "record": "the record of a run: lightning-tfm table and report read it in place",
}
"""kind -> what it is and what to do with it"""
ASKED = {"experiment": "an experiment", "rows": "a file of rows", "sweep": "a sweep file"}
BESIDE = {"title", "question", "sampler", "trials", "objectives", "constraints", "pruner", "prune_in_warmup"}
EXPERIMENT = {f.name for f in fields(Experiment)} | {"trainer", "out", "rows"}


def kind_of(values: Mapping[str, Any]) -> str | None:
    """One of KINDS; None where a file looks like none of them."""
    keys = set(values)
    if {"fingerprints", "base"} <= keys:
        return "study"
    if "training_hash" in keys:
        return "record"
    if "command" in keys or {"method", "parameters"} <= keys:
        return "sweep"
    if keys and all(isinstance(value, dict) and value.keys() & {"group", "change"} for value in values.values()):
        return "rows"
    if keys & EXPERIMENT:
        return "experiment"
    return "beside" if keys & BESIDE else None


def expect(kind: str, file: YamlFile) -> YamlFile:
    """`file`, unless it is clearly one of another kind than `kind` (a key of ASKED): then UserError says which."""
    actual = kind_of(file.values)
    if actual not in (None, kind):
        raise UserError(f"{file.path}: not {ASKED[kind]}, but {KINDS[actual]}")
    return file
