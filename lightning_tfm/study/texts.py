"""The dev text of a study, for its report."""

from pathlib import Path

from lightning_tfm.data.prepare import Prepared
from lightning_tfm.study.definition import Definition


def dev_texts(study: Definition, root: Path) -> tuple[list[str], list[str]]:
    """Source and reference lines of the dev text, empty where the data store is gone."""
    store = root / "data" / study.store
    if not (store / "card.json").is_file():
        return [], []
    split = Prepared(store).split(study.base.data.dev)
    return split.source_text(), split.target_text()
