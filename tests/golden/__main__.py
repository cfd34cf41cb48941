"""Write every golden view anew."""

import tempfile
from pathlib import Path

from tests.golden import HERE, STUDIES, comparison, plain, views

for folder in STUDIES:
    with tempfile.TemporaryDirectory() as root:
        for name, content in views(folder, Path(root)):
            (HERE / folder).mkdir(exist_ok=True)
            (HERE / folder / name).write_text(content)
with tempfile.TemporaryDirectory() as root:
    for name, content in [*comparison(Path(root)), *plain()]:
        (HERE / name).write_text(content)
