"""Translations of a run: those taken as it trains, those of its last scoring, and the sentences they translate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.report.pages.shared import Parts, compared, excerpt
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.watch.file_cache import Lines


@dataclass(frozen=True)
class Sentence:
    """A sentence with its translations by step, or by run."""

    line: int
    """of the text, from 1"""
    source: str
    reference: str
    translations: list[tuple[str, Parts]]


def over_time(folder: Path) -> list[Sentence]:
    """What samples.jsonl holds: a few dev sentences, translated at every validation. Empty where there is none."""
    lines = Lines(folder / "samples.jsonl")
    lines.look()
    records = lines.records
    head = next((r for r in records if _texts(r.get("sources")) and _texts(r.get("references"))), None)
    if head is None:
        return []
    taken = [r for r in records if _texts(r.get("translations")) and len(r["translations"]) == len(head["sources"])]
    found = []
    for i, (source, reference) in enumerate(zip(head["sources"], head["references"], strict=False)):
        translations: list[tuple[str, Parts]] = []
        before: str | None = None
        for record in taken:
            now = excerpt(record["translations"][i])
            translations.append((f"step {record.get('step')}", compared(now, now if before is None else before)))
            before = now
        found.append(Sentence(i + 1, source, reference, translations[::-1]))
    return found


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def hypotheses(folder: Path, record: RunRecord) -> list[str]:
    """The translations of the dev text by which the run was scored; empty where they are not here."""
    dev = record.scores.get("dev")
    if dev is None or not dev.split:
        return []
    return lines(folder / "scores" / dev.evaluation_hash[:16] / f"{dev.split}.hyp.txt")


def lines(path: Path) -> list[str]:
    """Lines of a text, split at line feeds only; empty where there is none."""
    try:
        return path.read_bytes().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return []


def dev_lines(root: Path, record: RunRecord) -> tuple[list[str], list[str]]:
    """Sources and references of the run's dev text; empty where the store is gone."""
    store, dev = root / "data" / record.data.store, record.scores.get("dev")
    if not record.data.store or dev is None or not (store / "card.json").is_file():
        return [], []
    from lightning_tfm.data.dataset import Prepared  # numpy and sentencepiece: only for those who ask

    split = Prepared(store).split(dev.split)
    return split.source_text(), split.target_text()


def of_the_end(root: Path, folder: Path, record: RunRecord, most: int = 8) -> list[Sentence]:
    """The first dev sentences as the finished run translated them."""
    found, (sources, references) = hypotheses(folder, record), dev_lines(root, record)
    if not (len(found) == len(sources) == len(references)):
        return []
    return [
        Sentence(
            i + 1, excerpt(sources[i]), excerpt(references[i]), [("at the end", compared(*[excerpt(found[i])] * 2))]
        )
        for i in range(min(most, len(found)))
    ]


def side_by_side(
    names: Sequence[str], found: Sequence[list[str]], texts: tuple[list[str], list[str]], most: int = 12
) -> list[Sentence]:
    """The sentences that the sides translate most differently: by the share of words that are not the first one's."""
    sources, references = texts
    count = min(len(one) for one in found)
    apart = sorted(range(count), key=lambda i: (-max(_distance(found[0][i], one[i]) for one in found[1:]), i))
    return [
        Sentence(
            i + 1,
            excerpt(sources[i]) if i < len(sources) else "",
            excerpt(references[i]) if i < len(references) else "",
            [(name, compared(excerpt(one[i]), excerpt(found[0][i]))) for name, one in zip(names, found, strict=True)],
        )
        for i in apart[:most]
    ]


def _distance(a: str, b: str) -> float:
    """Share of words that are not common, without their order: quick enough for thousands of sentences."""
    if a == b:
        return 0.0
    one, two = a.split(), b.split()
    common = len(set(one) & set(two))
    return 1 - common / max(len(set(one) | set(two)), 1)
