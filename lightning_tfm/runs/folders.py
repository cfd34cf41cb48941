"""Which runs a results folder holds."""

from pathlib import Path

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.runs.folder import RunFolder


def find_run(root: Path, start: str) -> RunFolder:
    """The run whose name starts with `start`. Raises UserError where there is none or several."""
    names = [path.name for path in run_folders(root)]
    found = [name for name in names if name.startswith(start[:16])]
    if len(found) != 1:
        what = f"several; {nearest('', found)}" if found else f"none; {nearest(start, names)}" if names else "none"
        raise UserError(f"run '{start}' under {root / 'runs'}: {what}")
    return RunFolder(root, found[0])


def run_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "runs").glob("[0-9a-f]*") if path.is_dir())
