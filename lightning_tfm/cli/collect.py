"""`report --collect`: what a report shows and only models can provide, computed where it is missing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, load_as

ALWAYS = ("calibration", "attention")
"""of every finished run"""
LONGEST = 2048
"""positions of the longest text that layer types are timed on; `lightning-tfm layers --study` takes others"""


def collect_study(name: str, root: Path, say: Callable[[str], None]) -> None:
    """Collect what is missing, reporting it line by line."""
    from lightning_tfm.inference.rescore import score_long
    from lightning_tfm.inference.weight_records import collect_run
    from lightning_tfm.report.analyses import layer_table

    study = load_as(Ablation, root, name)
    seen: set[str] = set()
    for row, seed, folder in _finished_runs(study, root):
        wanted = [what for what in _missing_rows(study) if what != "positions" or row not in seen]
        seen.add(row)
        missing = [what for what in wanted if not (folder.path / "report" / f"{what}.json").is_file()]
        if missing:
            say(f"{row}, seed {seed}: {', '.join(missing)}")
            try:
                collect_run(folder, study.base.data.dev, missing)
            except UserError as error:  # weights or data are gone: the report does without
                say(f"{row}, seed {seed}: {error}")
        if study.base.data.long:
            try:
                if score_long(folder, study.base):
                    say(f"{row}, seed {seed}: scored by length")
            except UserError as error:
                say(f"{row}, seed {seed}: {error}")
    path = folder_of(root, name) / layer_table.FILE
    if "model.layer" in _changed_rows(study) and not path.is_file():
        say("Table 1 of the paper, measured at its sizes: some minutes")
        _measure(study, path)


def _finished_runs(study: Ablation, root: Path) -> list[tuple[str, int, RunFolder]]:
    cells = [(row, seed) for row in study.rows for seed in sorted(study.seeds)]
    every = [(row.name, seed, RunFolder(root, study.cell(row, seed).training_hash)) for row, seed in cells]
    return [(row, seed, folder) for row, seed, folder in every if folder.finished()]


def _changed_rows(study: Ablation) -> set[str]:
    return {key for row in study.rows for key in row.change}


def _missing_rows(study: Ablation) -> list[str]:
    """Names of the records that this study's report shows; positions of each row's first run."""
    changed = _changed_rows(study)
    positions = ["positions"] if changed & {"model.positions", "model.clip"} else []
    softmax = ["softmax"] if "model.scores" in changed else []
    return [*ALWAYS, *positions, *softmax]


def _measure(study: Ablation, path: Path) -> None:
    """The types of the rows, at the sizes of the paper's base."""
    from lightning_tfm.atomic_io import write_atomic
    from lightning_tfm.cli.show.layers import measure_layers
    from lightning_tfm.report.analyses import layer_table

    types = dict.fromkeys(["attention", *(study.written(row).model.layer for row in study.rows)])
    paper = Model(neighbourhood=32)
    table = measure_layers(
        [replace(paper, layer=name) for name in types], paper.d_model, {"longest": LONGEST, "threads": 0}
    )
    write_atomic(path, layer_table.to_json(table).encode())
