"""Write golden views anew: all of them, or those of made-up studies by `python -m tests.golden made`."""

import sys
import tempfile
from pathlib import Path

from tests.golden import HERE, STUDIES, comparison, plain, views
from tests.golden.synthetic import VIEWS


def write(folder: Path, files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files:
        (folder / name).write_text(content)


every = {f"made/{name}": of for name, of in VIEWS.items()}
if sys.argv[1:] != ["made"]:
    every |= {folder: lambda root, folder=folder: views(folder, root) for folder in STUDIES}
    every |= {".": lambda root: [*comparison(root), *plain()]}
for folder, of in every.items():
    with tempfile.TemporaryDirectory() as root:
        write(HERE / folder, of(Path(root)))
