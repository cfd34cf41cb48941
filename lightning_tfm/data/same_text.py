"""Text that was edited since a run or a study was begun with it is refused, in words."""

import json
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.corpora import FilesCorpus, make_corpus
from lightning_tfm.data.prepare import Prepared, parts_of, prepare
from lightning_tfm.errors import UserError


def prepare_same(data: Data, root: Path, train: str, dev: str | None = None) -> Prepared:
    """`prepare`, of the text that a run or study was begun with. Raises UserError where it is another by now.

    `train` and `dev` are its fingerprints; without `dev` the dev text may be another.
    """
    prepared = prepare(data, root)
    if prepared.train_fingerprint == train and dev in (None, prepared.fingerprint(data.dev)):
        return prepared
    raise UserError(
        "the text or the tokenizer is not what the run was begun with: "
        f"{_what_changed(prepared, data, train, dev)}; nothing was trained on it. Put the old one back and run the "
        "same command to resume; a study of the new one needs a name of its own (--name)"
    )


def _what_changed(prepared: Prepared, data: Data, train: str, dev: str | None) -> str:
    """By the store that the run was begun with, where it is still there; else the fingerprints alone."""
    corpus, now = make_corpus(data), prepared.card["made_of"]["text"]
    for path in sorted(prepared.folder.parent.glob("*/card.json")):
        card = json.loads(path.read_bytes())
        began = {role: split["fingerprint"] for role, split in card["splits"].items()}
        if began["train"] != train or dev not in (None, began["dev"]):
            continue
        found = []
        for role, (name, *prints) in card["made_of"]["text"].items():
            for part, before, after in zip(parts_of(role, name), prints, now.get(role, [])[1:], strict=False):
                sides = zip((corpus.source, corpus.target), before.split(), after.split(), strict=False)
                if isinstance(corpus, FilesCorpus):
                    found += [corpus.name(part, language) for language, old, new in sides if old != new]
                elif before != after:
                    found.append(f"split {part}")
        return f"changed since: {', '.join(dict.fromkeys(found)) or 'settings of the data'}"
    return f"its training text had the fingerprint {train[:12]}…, now {prepared.train_fingerprint[:12]}…"
