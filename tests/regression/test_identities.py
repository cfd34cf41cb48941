"""No release renames a finished run: hashes of experiments written out on 2026-11-21.

identities.json holds all fields of that day, at their values; fields added since take their defaults. It is never
renewed: where NUMERICS_VERSION is raised on purpose, every run is new, and the hashes are those of the old version.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightning_tfm import config
from lightning_tfm.config import (
    ADDED,
    IDENTIFYING,
    Experiment,
    Model,
    evaluation_hash,
    from_record,
    training_hash,
    training_identity,
)
from lightning_tfm.study.user_classes import user_classes

WRITTEN = json.loads(Path(__file__).with_name("identities.json").read_bytes())
SECTIONS = {"model", "training", "evaluation"}


@pytest.mark.parametrize("name", WRITTEN)
def test_hashes_are_those_of_the_day_they_were_written(name, monkeypatch):
    monkeypatch.setattr(config, "NUMERICS_VERSION", 2)
    written = WRITTEN[name]
    e = from_record(written["experiment"])
    assert training_hash(training_identity(e, written["train"], user_classes(e))) == written["training_hash"]
    assert evaluation_hash(e, written["dev"]) == written["evaluation_hash"]


def test_the_table_the_large_models_and_a_trial_are_there():
    assert len(WRITTEN) == 23 and len({one["training_hash"] for one in WRITTEN.values()}) == 23


def test_every_field_is_identifying_or_says_where_it_acts():
    for cls, names in IDENTIFYING.items():
        section = next(f.name for f in dataclasses.fields(Experiment) if f.type is cls)
        added = [f"{section}.{f.name}" for f in dataclasses.fields(cls) if f.name not in names]
        assert added == [name for name in ADDED if name.startswith(f"{section}.")]
    assert {name.partition(".")[0] for name in ADDED} <= SECTIONS


@dataclass(frozen=True)
class Newer(Model):
    width_of_something: int = 7


def test_a_new_field_enters_only_where_it_acts_and_differs(monkeypatch):
    monkeypatch.setitem(IDENTIFYING, Newer, IDENTIFYING[Model])
    monkeypatch.setitem(ADDED, "model.width_of_something", lambda e: e.model.norm == "pre")

    def hashed(model: Model) -> str:
        return training_hash(training_identity(Experiment(model=model), "t", {}))

    assert hashed(Newer()) == hashed(Model()) == hashed(Newer(width_of_something=8))
    assert hashed(Newer(norm="pre")) == hashed(Model(norm="pre"))
    assert hashed(Newer(norm="pre", width_of_something=8)) != hashed(Model(norm="pre"))
