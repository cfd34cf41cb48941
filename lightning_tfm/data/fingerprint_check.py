"""Text that was edited since a run or a study was started with it is refused, in words."""

import json
from collections.abc import Mapping
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import parts_of, prepare, text_not_built
from lightning_tfm.data.sources.files import FilesCorpus, make_corpus
from lightning_tfm.errors import UserError

CHANGED = "changed since: "


def prepare_same(data: Data, root: Path, began: Mapping[str, str]) -> Prepared:
    """`prepare`, of the text that a study was started with. Raises UserError if it has changed since.

    `began`: its fingerprints by role, train and dev among them; a text whose role is not there may be another.
    """
    fresh = text_not_built(data, root)
    decide = {role: parts for role, parts in fresh.items() if role in began}
    what = _what_changed(Path(root), data, began, decide) if decide else ""
    if not what.startswith(CHANGED):  # else it is reported before the new text is encoded
        prepared = prepare(data, root)
        now = {role: split["fingerprint"] for role, split in prepared.card["splits"].items()}
        changed = [role for role, text in began.items() if now.get(role, text) != text]
        if not changed:
            return prepared
        what = _what_changed(Path(root), data, began, prepared.card["made_of"]["text"])
        what = (
            what or f"its {changed[0]} text had the fingerprint {began[changed[0]][:12]}…, now {now[changed[0]][:12]}…"
        )
    raise UserError(
        "the text or the tokenizer is not what the run was started with: "
        f"{what}; nothing was trained on it. Put the old one back and run the same command to resume; a study of the "
        "new one needs its own name (--name)"
    )


def _what_changed(root: Path, data: Data, began: Mapping[str, str], now: dict[str, list[str]]) -> str:
    """Of the roles in `now`, by the store that the study was started with; empty if that is gone."""
    corpus = make_corpus(data)
    for path in sorted((root / "data").glob("*/card.json")):
        card = json.loads(path.read_bytes())
        if any(began.get(role, split["fingerprint"]) != split["fingerprint"] for role, split in card["splits"].items()):
            continue
        changed = []
        for role, (name, *prints) in card["made_of"]["text"].items():
            for part, before, after in zip(parts_of(role, name), prints, now.get(role, [])[1:], strict=False):
                sides = zip((corpus.source, corpus.target), before.split(), after.split(), strict=False)
                if isinstance(corpus, FilesCorpus):
                    changed += [corpus.name(part, language) for language, old, new in sides if old != new]
                elif before != after:
                    changed.append(f"split {part}")
        return f"{CHANGED}{', '.join(dict.fromkeys(changed))}" if changed else "settings of the data changed since"
    return ""
