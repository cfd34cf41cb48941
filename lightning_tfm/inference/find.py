"""A finished run by its folder or name, before PyTorch is loaded: a wrong name is answered at once."""

import json
from pathlib import Path

from lightning_tfm.config import Experiment, from_record
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder, find_run


def find_trained(run: str, root: Path) -> RunFolder:
    """The run by its directory, or by the start of its name under `root`. Raises UserError unless it is finished."""
    path = Path(run)
    if (path / "identity.json").is_file():
        path = path.resolve()
        folder = RunFolder(path.parent.parent, path.name)
    elif path.is_dir():
        raise UserError(f"{path} is not the directory of a run: it has no identity.json")
    else:
        folder = find_run(root, run)
    if not folder.finished():
        raise UserError(f"{folder.path} is not fully trained: lightning-tfm fit with its configuration resumes it")
    return folder


def experiment_of(folder: RunFolder) -> Experiment:
    """The experiment at its true sizes, as the run recorded it."""
    result = folder.read_result()
    plain = result.experiment if result and result.experiment else json.loads(folder.experiment.read_bytes())
    return from_record(plain)
