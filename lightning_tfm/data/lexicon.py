"""The words of the built-in language pair: an arbitrary lexicon of both languages, drawn from a seed.

Translation, gender, category, number of arguments and conjugation of a word show in no spelling: they must be learned.
Words are spelled from syllables, so that byte-pair encoding keeps frequent words whole and cuts rare ones.
"""

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

NOUNS, VERBS, ADJECTIVES, PREPOSITIONS, TIMES, NAMES = 120, 50, 40, 8, 10, 30
"""word stems of each kind"""
PARTICLES, PARTICLE_VERBS = 4, 10
"""particles, and how many verbs (the most frequent) change their meaning with each"""
ZIPF_EXPONENT, ZIPF_SHIFT = 1.0, 2.0
"""the stem of rank r (from 0) is drawn with a weight of (r + shift)^-exponent"""
AMBIGUOUS_VERBS, AMBIGUOUS_ADJECTIVES = 0.25, 0.25
"""part of the verbs and adjectives whose translation depends on the category of a noun"""
STRONG_VERBS = 0.4
"""part of the verbs whose past takes a prefix"""
ARGUMENTS = (1, 1, 2, 2, 2, 2, 3)
"""a verb's number of arguments is drawn from these: subject, and object, and recipient"""
SYLLABLES = 60
"""syllables that the words of one language are spelled with"""
SHORT_WORDS = 0.7
"""part of each kind, the most frequent, that has two syllables; the rest has three"""
CATEGORIES = 3
"""animate, thing, idea"""


class Draw:
    """Random choices from Philox's raw 64-bit words, which NumPy promises to keep over versions."""

    def __init__(self, *key: object):
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))
        self._block: list[float] = []

    def unit(self) -> float:
        """Uniform in [0, 1)."""
        if not self._block:
            self._block = ((self._bits.random_raw(4096) >> np.uint64(11)) * 2.0**-53).tolist()
        return self._block.pop()

    def below(self, n: int) -> int:
        return int(self.unit() * n)

    def zipf(self, weights: list[float]) -> int:
        """Index drawn by cumulated weights."""
        return bisect_right(weights, self.unit() * weights[-1])


@dataclass(frozen=True)
class Noun:
    source: str
    target: str
    gender: int
    category: int
    """animate, thing or idea; shows in neither language, but decides the sense of other words"""


@dataclass(frozen=True)
class Verb:
    source: str
    senses: tuple[str, ...]
    """translation by the category of the object, or of the subject where there is no object"""
    arguments: int
    """1: subject, 2: and object, 3: and recipient"""
    strong: bool
    """second conjugation: the past has a prefix"""
    particles: tuple[str, ...]
    """translation with each particle; empty for a verb that takes none"""


@dataclass(frozen=True)
class Adjective:
    source: str
    senses: tuple[str, ...]


class Spelling:
    """Spells new words of one language, none twice, from syllables of its own."""

    def __init__(self, draw: Draw, onsets: str, vowels: str, codas: str, endings: tuple[str, ...]):
        every = [o + v + c for o in onsets.split() for v in vowels.split() for c in (*codas, "", "")]
        self._draw, self._endings = draw, endings
        self._syllables = [every.pop(draw.below(len(every))) for _ in range(SYLLABLES)]
        self._taken: set[str] = set()

    def word(self, rank: float) -> str:
        """A word of two syllables where `rank` (0 to 1, frequent first) is low, else of three."""
        while True:
            length = 2 if rank < SHORT_WORDS else 3
            word = "".join(self._syllables[self._draw.below(SYLLABLES)] for _ in range(length))
            forms = {word, *(word + ending for ending in self._endings)}
            if not forms & self._taken:
                self._taken |= forms
                return word


class Lexicon:
    """All words of both languages, drawn once from the seed."""

    def __init__(self, seed: int):
        draw = Draw("lexicon", seed)
        source = Spelling(draw, "b d f g k l m n p r s t v", "a e i o u", "nrlm", ("s", "ed"))
        target = Spelling(draw, "br d f gl h j k kl m n pr sch st t w z", "a e i o u ie au", "nrtsk", ())

        def senses(rank: float, ambiguous: float) -> tuple[str, ...]:
            first = target.word(rank)
            if draw.unit() >= ambiguous:
                return (first,) * CATEGORIES
            second, odd = target.word(rank), draw.below(CATEGORIES)
            return tuple(second if category == odd else first for category in range(CATEGORIES))

        def particles(rank: int) -> tuple[str, ...]:
            return tuple(target.word(0) for _ in range(PARTICLES)) if rank < PARTICLE_VERBS else ()

        self.nouns = [
            Noun(source.word(r / NOUNS), target.word(r / NOUNS), draw.below(3), draw.below(CATEGORIES))
            for r in range(NOUNS)
        ]
        self.verbs = [
            Verb(
                source.word(r / VERBS),
                senses(r / VERBS, AMBIGUOUS_VERBS),
                ARGUMENTS[draw.below(len(ARGUMENTS))],
                draw.unit() < STRONG_VERBS,
                particles(r),
            )
            for r in range(VERBS)
        ]
        self.adjectives = [
            Adjective(source.word(r / ADJECTIVES), senses(r / ADJECTIVES, AMBIGUOUS_ADJECTIVES))
            for r in range(ADJECTIVES)
        ]
        names = [source.word(1).capitalize() for _ in range(NAMES)]
        self.names = [Noun(name, name, draw.below(3), 0) for name in names]
        self.prepositions = [(source.word(0), target.word(0)) for _ in range(PREPOSITIONS)]
        self.times = [(source.word(0), target.word(0)) for _ in range(TIMES)]
        self.particles = [source.word(0) for _ in range(PARTICLES)]
        self.units = [(source.word(0), target.word(0)) for _ in range(9)]
        self.tens = [(source.word(0), target.word(0)) for _ in range(9)]
        self.hundred = (source.word(0), target.word(0))
        self.weights = {
            n: list(accumulate((r + ZIPF_SHIFT) ** -ZIPF_EXPONENT for r in range(n)))
            for n in (NOUNS, VERBS, ADJECTIVES, PREPOSITIONS, TIMES, NAMES)
        }

    def number(self, n: int) -> tuple[list[str], list[str]]:
        """The number n, 1 to 999, in both languages: hundreds tens units against hundreds units-and-tens."""
        hundreds, tens, units = n // 100, n // 10 % 10, n % 10
        source, target = [], []
        if hundreds:
            source += [self.units[hundreds - 1][0], self.hundred[0]]
            target += [self.units[hundreds - 1][1] + self.hundred[1]]
        parts = []
        if units:
            parts.append(self.units[units - 1][1])
        if tens:
            source.append(self.tens[tens - 1][0])
            parts.append(self.tens[tens - 1][1])
        if units:
            source.append(self.units[units - 1][0])
        return source, target + (["un".join(parts)] if parts else [])
