"""Prepares the data of a study, and of rows that change them, and refuses what could not be compared."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lightning_tfm.config import Experiment
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.length_buckets import check_reach
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import Fingerprints, Row, RowData, apply, data_key
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import AnyStudy


def on_this_machine(study: AnyStudy, root: Path, say: Callable[[str], None] | None = None) -> AnyStudy:
    """`study` on the text and with the code of its classes that are here, the text prepared. Raises UserError."""
    prepared = prepare(study.base.data, root, say)
    prints = Fingerprints.of(prepared, study.base.data)
    here = replace(study, prints=prints, V=prepared.tokenizer.V, store=prepared.folder.name)
    if isinstance(here, Ablation):
        here = replace(here, data=rows_data(here.base, prepared, here.every_row, root))
    return here.with_sources()


def rows_data(base: Experiment, prepared: Prepared, rows: Sequence[Row], root: Path) -> dict[str, RowData]:
    """The data of every row that changes them, prepared, by data_key; `prepared`: those of base.

    Raises UserError where a row's dev or test text is not base's, where pieces of its references are unknown: these
    would cost it less than the text does; and where a row's learned positions end before a line that is scored.
    """
    by_key: dict[str, RowData] = {}
    texts = {"dev": base.data.dev}  # the others where pieces differ: otherwise an unknown one costs all rows the same
    every = texts | {"test": base.data.test, "long": base.data.long}
    for row in rows:
        key, changed = data_key(row.change), apply(base, row)
        data, whose = changed.data, f"{row.where}: row '{row.name}'"
        if data.long and not data.long_from and data.max_len != base.data.max_len:
            raise UserError(
                f"{whose} changes data.max_len, which the lengths of data.long={data.long} are measured in: set "
                f"data.long_from={base.data.max_len} in the experiment file: all rows are scored on the same lines"
            )
        if not key:
            check_reach(changed, prepared, whose)
        if not key or key in by_key:
            continue
        own = prepare(data, root)
        check_reach(changed, own, whose)
        for split in filter(None, (data.dev, data.test, data.long)):
            if raw_fingerprint(own, split) != raw_fingerprint(prepared, split):
                raise UserError(
                    f"{row.where}: row '{row.name}' ({key}) changes the text '{split}' that it is scored on: rows of a "
                    "table are scored on the same text"
                )
        texts = texts if own.tokenizer.fingerprint == prepared.tokenizer.fingerprint else every
        _check_known(own, texts, f"{row.where}: row '{row.name}' ({key})")
        by_key[key] = RowData(Fingerprints.of(own, data), own.tokenizer.V, own.folder.name)
    if by_key:
        _check_known(prepared, texts, "base")
    return by_key


def raw_fingerprint(prepared: Prepared, split: str) -> str:
    """sha256 of the raw lines of a split, both sides, however they are cut into pieces."""
    pairs = prepared.split(split)
    lines = (line for pair in zip(pairs.source_text(), pairs.target_text(), strict=True) for line in pair)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")).hexdigest()


def _check_known(prepared: Prepared, texts: dict[str, str], whose: str) -> None:
    for text, split in texts.items():
        if split and (unknown := prepared.unknown_references(split)):
            raise UserError(
                f"{whose}: {unknown} tokens of its {text} references are unknown to its vocabulary, and an unknown "
                "token costs less than the word it replaces: with data.byte_fallback=true in the experiment file all "
                "rows can spell every word"
            )
