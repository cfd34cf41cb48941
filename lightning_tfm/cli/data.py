"""`data`: prepare | verify | show: corpora fetched, cleaned, encoded, inspected."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import Parser, check_action, check_trainer, make_parser, parse, prints_config, words
from lightning_tfm.cli.terminal import fit_width
from lightning_tfm.config import Data
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.plural_words import plural
from lightning_tfm.registry import CORPORA
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.preflight import check_not_defaults
from lightning_tfm.study.settings import Settings

if TYPE_CHECKING:
    from lightning_tfm.data.dataset import Prepared

BELONGS = {"sets": ("prepare",), "split": ("show",), "pairs": ("show",)}
"""option -> the actions that it belongs to"""
PAIRS = 5


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Fetch, check, clean and encode a corpus; inspect it.")
    parser.add_action("prepare", "verify", "show")
    names = f"{', '.join(CORPORA)}, or the import path of your own class [data.corpus]"
    parser.add_argument("corpus", nargs="?", help=names)
    parser.add_argument(
        "--sets",
        action="extend",
        type=words,
        default=[],
        help="prepare: another test set: newstest2014-filtered; may be repeated",
    )
    parser.add_argument("--split", help="show: a split by its name [data.train]")
    parser.add_argument("--pairs", type=int, help=f"show: how many random pairs [{PAIRS}]")
    settings, data = _parse_data(verb, parser, argv)
    action = settings.verb["action"]
    if prints_config(settings):
        return 0
    try:
        return _act(action, data, settings.out, settings.verb, settings.exact.training.seed)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"no space left ({error.filename or data.folder}); free some space and run the same command again"
        ) from error


def _parse_data(verb: str, parser: Parser, argv: Sequence[str]) -> tuple[Settings, Data]:
    """The settings, with the shipped experiment of a fetched corpus where no --config names another."""
    from lightning_tfm.data.wmt.manifest import SOURCES

    settings = parse(parser, argv)
    action, name = settings.verb["action"], settings.verb["corpus"]
    check_action(verb, action, settings.verb, BELONGS)
    check_trainer(settings, verb)
    configured = any(token == "--config" or token.startswith("--config=") for token in argv)
    if name in SOURCES and not configured:
        settings = parse(parser, ["--config", SOURCES[name].experiment, *argv])
    data = settings.exact.data
    if name is None and action != "verify":
        check_not_defaults(settings.base, verb)
    if name is None or name == data.corpus:
        return settings, data
    if name not in CORPORA and not {".", ":"} & {*name}:
        raise UserError(f"data {action} {name}: {nearest(name, CORPORA)}")
    if name == "files" and not data.folder:
        raise UserError(f"data {action} files needs --data.folder, the folder of the parallel files")
    return settings, replace(data, corpus=name)


def _act(action: str, data: Data, root: Path, options: dict[str, Any], seed: int) -> int:
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.data.wmt.manifest import SOURCES

    match action:
        case "prepare":
            if data.corpus in SOURCES:
                from lightning_tfm.data.wmt.official import obtain

                obtain(data, [*_splits(data), *options["sets"]], say)
            elif options["sets"]:
                raise UserError(f"--sets={','.join(options['sets'])}: only for {', '.join(SOURCES)}, not {data.corpus}")
            prepared = prepare(data, root, say)
            print(fit_width(card_text(prepared, data.max_len), indent=16))
            print(prepared.folder)
        case "verify":
            return _verify(data, root)
        case "show":
            pairs = PAIRS if options["pairs"] is None else options["pairs"]
            _show(data, root, options["split"], pairs, seed)
    return 0


def card_text(prepared: "Prepared", max_len: int) -> str:
    """The card, and how many training pairs have more than `max_len` pieces on a side."""
    card, tokenizer = prepared.card, prepared.card["tokenizer"]
    languages = " -> ".join(filter(None, card["languages"]))
    lines = [f"{card['corpus']}, {languages}; {tokenizer['V']} tokens, {tokenizer['sha256'][:16]}"]
    for role, split in card["splits"].items():
        pairs = split["pairs"]
        lines.append(
            f"{role:6}{split['name']}: {pairs['kept']:,} pairs of {pairs['read']:,}; {split['fingerprint'][:16]}"
        )
        for rule, count in pairs["dropped"].items():
            where = ", ".join(split["dropped_first"][rule]) if "dropped_first" in split else ""
            lines.append(f"        {count:,} dropped: {rule}" + (f" (first at {where})" if where else ""))
        known_by = "sources" if card["languages"][0] else "texts"
        for other, count in split["source_also_in"].items():
            lines += [f"        {count:,} {known_by} also occur in {other}"] if count else []
        for side, pieces in split["pieces"].items():
            lines += [
                f"        {side}: {pieces['total']:,} tokens, {pieces['unknown']:,} unknown; a line {pieces['mean']}, "
                f"half up to {pieces['50%']}, 99 % up to {pieces['99%']}, longest {pieces['longest']}"
            ] * bool(pieces["total"])
    left = f"{prepared.too_long(max_len):,} of {len(prepared.train):,} training pairs"
    return "\n".join([*lines, f"data.max_len={max_len} leaves out {left}"])


def _splits(data: Data) -> list[str]:
    return [*data.train.split("+"), *(split for split in (data.dev, data.test) if split)]


def _verify(data: Data, root: Path) -> int:
    """Check every recorded file, fetched or prepared, against its checksum; 1 where one differs."""
    from lightning_tfm.data.wmt.checksums import Checksums
    from lightning_tfm.data.wmt.official import folder_of

    folders = [folder_of(data), *sorted(path.parent for path in (root / "data").glob("[0-9a-f]*/card.json"))]
    good, wrong = 0, 0
    for folder in folders:
        for name, fault in Checksums(folder).verify():
            good, wrong = good + (not fault), wrong + bool(fault and fault != "absent")
            if fault:
                print(f"{folder / name}: {fault}")
    print(f"{plural(good, 'file')} as recorded, {wrong} not")
    return 1 if wrong else 0


def _show(data: Data, root: Path, held_out: str | None, pairs: int, seed: int) -> None:
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.rng import generator

    prepared, name = prepare(data, root, say), held_out or data.train
    split, tokenizer = prepared.split(held_out) if held_out else prepared.train, prepared.tokenizer
    for i in sorted(generator("show", seed).choice(len(split), min(pairs, len(split)), replace=False).tolist()):
        for language, ids in zip(data.languages, (split.source(i), split.target(i)), strict=True):
            print(f"{name}:{i + 1} {language}  {tokenizer.decode(ids.tolist())}")
            print(f"    {len(ids)} tokens: {' '.join(tokenizer.piece(id) for id in ids)}")
