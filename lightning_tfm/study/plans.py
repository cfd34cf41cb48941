"""The runs of a study as experiments."""

from collections.abc import Callable
from pathlib import Path

from lightning_tfm.config import training_hash
from lightning_tfm.errors import UserError
from lightning_tfm.study import definition
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.study.definition import Definition
from lightning_tfm.study.rows import apply, run_identity
from lightning_tfm.study.tune import Search


def plans_of(study: Definition | Search, root: Path) -> Callable[[Cell], Plan]:
    """Plans of a study's cells; study.json is read again for rows and seeds that were added meanwhile.

    Raises UserError where the same row means another run here than where the study was started.
    """
    known = study

    def find(cell: Cell) -> Plan:
        nonlocal known
        if isinstance(known, Search):
            experiment, identity = known.experiment(cell.change), known.identity(cell.change)
        else:
            if cell.row not in {row.name for row in known.rows}:
                known = definition.load(root, study.name)
            row = next(row for row in known.rows if row.name == cell.row)
            experiment = apply(known.base, row, cell.seed)
            identity = run_identity(known.base, row, cell.seed, known.prints.train)
        if training_hash(identity) != cell.training_hash:
            raise UserError(
                f"{cell.row}, seed {cell.seed}: here it is run {training_hash(identity)[:16]}, in the study "
                f"{cell.training_hash[:16]}: another version of lightning_tfm, or of a class of your own"
            )
        return experiment.scaled(), identity

    return find
