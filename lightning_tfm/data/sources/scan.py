"""SCAN (Lake and Baroni 2018): all 20,910 commands of its grammar, each with the actions that it means.

    C -> S and S | S after S | S              S -> V twice | V thrice | V
    V -> D opposite SIDE | D around SIDE | D SIDE | U           D -> U | turn        U -> walk | look | run | jump

`jump left` is LTURN JUMP, `jump opposite left` LTURN LTURN JUMP, `jump around left` four times LTURN JUMP; turn adds no
action to the turns. `x after y` is y, then x. The splits, as their authors made them but for the first:

    simple-train, simple-test     16,728 and 4,182 commands, dealt by a hash: theirs are other random ones of that size
    length-train, length-test     up to 22 actions, and 24 to 48
    jump-train, jump-test         no command with jump except `jump` itself, a tenth of all; and every other one with it
"""

import hashlib
from collections.abc import Iterator
from functools import cache

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.errors import UserError, nearest

VERBS, SIDES, TIMES = (
    ("walk", "look", "run", "jump"),
    {"left": ["LTURN"], "right": ["RTURN"]},
    {"twice": 2, "thrice": 3},
)
TESTED, LONGEST, JUMPS = 4182, 22, 1467
"""commands of simple-test, actions of the longest command of length-train, and how often jump-train has `jump`"""
VERSION = 1
"""raised whenever a split becomes other lines"""

Meaning = tuple[str, list[str]]
"""a command and its actions"""


def phrases() -> Iterator[Meaning]:
    """V: 34 of them."""
    verbs = [(verb, [verb.upper()]) for verb in VERBS]
    yield from verbs
    for verb, actions in [*verbs, ("turn", [])]:
        for side, turn in SIDES.items():
            yield f"{verb} {side}", turn + actions
            yield f"{verb} opposite {side}", turn + turn + actions
            yield f"{verb} around {side}", (turn + actions) * 4


def commands() -> Iterator[Meaning]:
    """C: all commands, in one order."""
    sentences = list(phrases())
    sentences += [(f"{text} {word}", actions * times) for text, actions in sentences for word, times in TIMES.items()]
    yield from sentences
    for first, before in sentences:
        for second, then in sentences:
            yield f"{first} and {second}", before + then
            yield f"{first} after {second}", then + before


@cache
def _all_splits() -> dict[str, list[Meaning]]:
    every = list(commands())
    dealt = sorted(every, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
    jump, splits = (VERBS[-1], [VERBS[-1].upper()]), dict[str, list[Meaning]]()
    splits["simple-test"], splits["simple-train"] = dealt[:TESTED], dealt[TESTED:]
    splits["length-train"] = [pair for pair in dealt if len(pair[1]) <= LONGEST]
    splits["length-test"] = [pair for pair in dealt if len(pair[1]) > LONGEST]
    splits["jump-train"] = [pair for pair in dealt if jump[0] not in pair[0].split()] + [jump] * JUMPS
    splits["jump-test"] = [pair for pair in dealt if jump[0] in pair[0].split() and pair != jump]
    return splits


class ScanCorpus(Corpus):
    """Commands and actions; `data.train` and `data.dev` name two of the splits above."""

    def __init__(self, data: Data):
        self.source, self.target = data.source, data.target

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        splits = _all_splits()
        if split not in splits:
            raise UserError(f"data: SCAN has no split '{split}': {nearest(split, splits)}")
        return ((command, " ".join(actions)) for command, actions in splits[split])

    def fingerprint(self, split: str) -> str:
        return f"SCAN {split} {VERSION}"

    def name(self, split: str, language: str) -> str:
        return f"SCAN, {split}.{language}"
