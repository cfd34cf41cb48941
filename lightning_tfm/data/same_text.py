"""Text that was edited since a run or a study was started with it is refused, in words."""

import json
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.corpora import FilesCorpus, make_corpus
from lightning_tfm.data.prepare import parts_of, prepare, text_not_built
from lightning_tfm.data.prepared import Prepared
from lightning_tfm.errors import UserError

CHANGED = "changed since: "


def prepare_same(data: Data, root: Path, train: str, dev: str | None = None) -> Prepared:
    """`prepare`, of the text that a run or study was started with. Raises UserError if it has changed since.

    `train` and `dev` are its fingerprints; without `dev` the dev text may be another.
    """
    fresh = text_not_built(data, root)
    decide = {role: parts for role, parts in fresh.items() if role == "train" or (role == "dev" and dev is not None)}
    what = _what_changed(Path(root), data, train, dev, decide) if decide else ""
    if not what.startswith(CHANGED):  # else it is reported before the new text is encoded
        prepared = prepare(data, root)
        if prepared.train_fingerprint == train and dev in (None, prepared.fingerprint(data.dev)):
            return prepared
        what = _what_changed(Path(root), data, train, dev, prepared.card["made_of"]["text"])
        what = what or f"its training text had the fingerprint {train[:12]}…, now {prepared.train_fingerprint[:12]}…"
    raise UserError(
        "the text or the tokenizer is not what the run was started with: "
        f"{what}; nothing was trained on it. Put the old one back and run the same command to resume; a study of the "
        "new one needs its own name (--name)"
    )


def _what_changed(root: Path, data: Data, train: str, dev: str | None, now: dict[str, list[str]]) -> str:
    """Of the roles in `now`, by the store that the run was started with; empty if that is gone."""
    corpus = make_corpus(data)
    for path in sorted((root / "data").glob("*/card.json")):
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
        return f"{CHANGED}{', '.join(dict.fromkeys(found))}" if found else "settings of the data changed since"
    return ""
