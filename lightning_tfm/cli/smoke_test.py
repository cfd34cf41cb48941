"""A smoke test: ten steps of everything that a command would train, in a folder apart from results."""

from dataclasses import replace
from pathlib import Path

from lightning_tfm.config import Experiment
from lightning_tfm.study.rows import Row
from lightning_tfm.study.settings import Settings
from lightning_tfm.study.study_file import SMOKE_STEPS
from lightning_tfm.study.sweeps import Pruner, SearchFile

SHORTENED = tuple(f"training.{name}" for name in "steps warmup average_last average_every".split())
"""what is the same for all runs of a smoke test"""


def smoke_test(settings: Settings) -> Settings:
    """`settings` with SMOKE_STEPS steps of base and of its row, in their own folder; no ratios decide their regime."""
    base, t = settings.base, settings.base.training
    t = replace(t, average_last=min(t.average_last, 2), average_every=min(t.average_every, SMOKE_STEPS // 2))
    t = replace(t, steps=SMOKE_STEPS, warmup=min(t.warmup, SMOKE_STEPS // 2))
    base = replace(base, training=t, miniature=replace(base.miniature, steps=1))
    hardware = replace(settings.hardware, validate_every=0, checkpoint_every=0)
    row = settings.row and smoke_row(settings.row, base)
    return replace(settings, base=base, hardware=hardware, row=row, out=smoke_folder(settings.out), held=None)


def smoke_folder(out: Path) -> Path:
    return out if out.name == "smoke" else out / "smoke"


def smoke_row(row: Row, base: Experiment) -> Row:
    """`row` with base's steps where it has its own."""
    of_base = {key: getattr(base.training, key.partition(".")[2]) for key in SHORTENED if key in row.change}
    return replace(row, change=row.change | of_base)


def smoke_search(file: SearchFile) -> SearchFile:
    """`file` without the steps that it searches, and without a pruner, which would see none of so few."""
    specs, ties = ({key: x for key, x in of.items() if key not in SHORTENED} for of in (file.specs, file.ties))
    return replace(file, specs=specs, ties=ties, early=None, pruner=Pruner())
