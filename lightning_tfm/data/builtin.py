"""The built-in language pair: invented, generated from a seed, deterministic on every machine.

Each source sentence has exactly one right translation. A small model learns part of it soon and never all: the lexicon
is arbitrary and Zipf-distributed (rare words are seen a few times), and the grammar asks for what the rows of Table 3
differ in:

    width, d_ff     some 250 word stems with arbitrary translations, genders, categories, verb classes
    heads           several agreements at once: article and adjective with gender, number and case of their noun, the
                    verb with its subject, relative pronouns and "it" with what they stand for
    depth           relative clauses inside relative clauses, verbs and adjectives whose translation depends on the
                    category of another word, verb + particle at a distance, genitives, "it" across clauses
    positions       who does what to whom stands in the word order alone; objects and verbs move in translation

The source, after English: articles `ta` and `un`; adjective before noun; plural `-s`, past `-ed`. The order is subject,
negation `no`, future `va`, verb, object, `to` recipient, particle, place, time. Relative clauses begin with `ke`; `par`
(because) and `e` (and) join clauses, in which `il` stands for the first subject and `lo` for the first object; a
question differs by its `?`.

The target, after German: three genders marked by the vowels o, a, e, the plural by i; cases by the last consonant. A
main clause is subject, finite verb, recipient, object, place, negation, infinitive; a time comes first and the subject
then after the verb; a question begins with the verb; subordinate and relative clauses end with it. Two nouns become one
word, the head first. 321 is three-hundred one-and-twenty. Names take an ending for their case.

Where two readings were possible the nearer one holds: relative clauses have no particle, place, time or negation, and a
noun with a genitive has no relative clause of its own.
"""

import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from lightning_tfm.data import lexicon
from lightning_tfm.data.lexicon import Draw, Lexicon, Verb
from lightning_tfm.errors import UserError, nearest

P_PLAIN = 0.6
"""chance of a plain sentence: one main clause without compound, genitive, relative clause, particle, place, time and
future, no question. Plain ones show a model early where to look; else it long knows no more than the target language"""
P_ADJECTIVE, P_COMPOUND, P_GENITIVE, P_NUMBER, P_NAME, P_INDEFINITE, P_PLURAL = 0.15, 0.05, 0.06, 0.08, 0.12, 0.35, 0.30
P_RELATIVE = (0.1, 0.1, 0.0)
"""chance of a relative clause on a noun of a main clause, of a relative clause, of a relative clause in that"""
P_OBJECT_RELATIVE = 0.4
P_PLACE, P_TIME, P_NEGATION, P_QUESTION, P_PAST, P_FUTURE = 0.08, 0.12, 0.12, 0.12, 0.30, 0.20
P_PARTICLE = 0.5
"""chance of a particle with a verb that takes one"""
P_SECOND_CLAUSE, P_BECAUSE, P_IT_SUBJECT, P_IT_OBJECT = 0.08, 0.5, 0.6, 0.4
LONGEST = 30
"""words of the longest source sentence"""
HELD_OUT = 500
"""pairs in each of val and test"""

T = TypeVar("T")
SPLITS = ("train", "val", "test")
GENDERS, PLURAL = "oae", "i"
CASES = {"nominative": "", "accusative": "n", "dative": "m", "genitive": "s"}
PLURAL_ENDINGS, LINKS = ("ir", "ul", "en"), ("s", "n", "")
"""by gender of the noun: its plural, and what links it to the head of a compound"""


@dataclass(frozen=True)
class Phrase:
    """A noun phrase in both languages and what other words must know of it."""

    source: list[str]
    target: list[str]
    vowel: str
    """o, a, e by gender, i in the plural"""
    category: int


class Grammar:
    """Draws sentences; every method returns both languages at once."""

    def __init__(self, lexicon: Lexicon, draw: Draw):
        self._words, self._draw = lexicon, draw
        self._plain = False

    def sentence(self) -> tuple[str, str]:
        """One pair: spaces between words, a capital first, `.` or `?` last."""
        self._plain = self._chance(P_PLAIN)
        question = self._hard(P_QUESTION)
        source, target, subject, object_ = self._clause("question" if question else "main")
        if self._hard(P_SECOND_CLAUSE):
            because = self._chance(P_BECAUSE)
            more = self._clause("subordinate" if because else "main", subject, object_)
            source = [*source, "par" if because else "e", *more[0]]
            target = [*target, "wal" if because else "ond", *more[1]]
        return tuple(_capital(" ".join(words)) + ".?"[question] for words in (source, target))

    def _clause(
        self, order: str, first_subject: Phrase | None = None, first_object: Phrase | None = None
    ) -> tuple[list[str], list[str], Phrase, Phrase | None]:
        """A clause in both languages, its subject and its object; `order` is main, question or subordinate."""
        verb = self._verb(1)
        if first_subject is not None and self._chance(P_IT_SUBJECT):
            subject = _it(first_subject, "il", "nominative")
        else:
            subject = self._phrase("nominative", 0)
        object_ = recipient = None
        if verb.arguments > 1:
            if first_object is not None and self._chance(P_IT_OBJECT):
                object_ = _it(first_object, "lo", "accusative")
            else:
                object_ = self._phrase("accusative", 0)
        if verb.arguments > 2:
            recipient = self._phrase("dative", 0)
        stem = verb.senses[(object_ or subject).category]
        source = list(object_.source) if object_ else []
        if recipient:
            source += ["to", *recipient.source]
        if verb.particles and self._hard(P_PARTICLE):
            which = self._draw.below(len(verb.particles))
            source.append(self._words.particles[which])
            stem = verb.particles[which]
        place, time, negation = [], [], []
        if self._hard(P_PLACE):
            preposition = self._pick(self._words.prepositions)
            where = self._phrase("dative", None)
            source += [preposition[0], *where.source]
            place = [preposition[1], *where.target]
        if self._hard(P_TIME):
            when = self._pick(self._words.times)
            source.append(when[0])
            time = [when[1]]
        source_verb, finite, infinitive = self._tense(verb, stem, subject.vowel)
        if self._chance(P_NEGATION):
            negation = ["nit"]
            source_verb = ["no", *source_verb]
        middle = [*(recipient.target if recipient else []), *(object_.target if object_ else []), *place, *negation]
        if order == "question":
            target = [finite, *subject.target, *time, *middle, *infinitive]
        elif order == "subordinate":
            target = [*subject.target, *time, *middle, *infinitive, finite]
        elif time:
            target = [*time, finite, *subject.target, *middle, *infinitive]
        else:
            target = [*subject.target, finite, *middle, *infinitive]
        return [*subject.source, *source_verb, *source], target, subject, object_

    def _phrase(self, case: str, depth: int | None) -> Phrase:
        """A noun phrase inside `depth` relative clauses; None for one without genitive and relative clause."""
        if self._chance(P_NAME):
            name = self._pick(self._words.names)
            phrase = Phrase([name.source], [name.target + CASES[case]], GENDERS[name.gender], name.category)
        else:
            phrase = self._common(case)
        if depth is None:
            return phrase
        source, target = list(phrase.source), list(phrase.target)
        if self._hard(P_GENITIVE):
            owner = self._phrase("genitive", None)
            source += ["de", *owner.source]
            target += owner.target
        elif self._hard(P_RELATIVE[depth]):
            more = self._relative(phrase, depth + 1)
            source += more[0]
            target += more[1]
        return Phrase(source, target, phrase.vowel, phrase.category)

    def _common(self, case: str) -> Phrase:
        """Article or number, adjective, noun or compound."""
        noun = self._pick(self._words.nouns)
        number = self._number() if self._chance(P_NUMBER) else 1
        plural = number > 1 or self._chance(P_PLURAL)
        vowel = PLURAL if plural else GENDERS[noun.gender]
        if number > 1:
            source, target = self._words.number(number)
        elif self._chance(P_INDEFINITE):
            source, target = ["un"], ["k" + vowel + CASES[case]]
        else:
            source, target = ["ta"], ["d" + vowel + CASES[case]]
        if self._chance(P_ADJECTIVE):
            adjective = self._pick(self._words.adjectives)
            source.append(adjective.source)
            target.append(adjective.senses[noun.category] + vowel + ("" if case == "nominative" else "n"))
        word = noun.target
        if self._hard(P_COMPOUND):
            modifier = self._pick(self._words.nouns)
            source.append(modifier.source)
            word += LINKS[modifier.gender] + modifier.target
        source.append(noun.source + ("s" if plural else ""))
        target.append(word + (PLURAL_ENDINGS[noun.gender] if plural else ""))
        return Phrase(source, target, vowel, noun.category)

    def _relative(self, head: Phrase, depth: int) -> tuple[list[str], list[str]]:
        """A relative clause on `head`, which is its subject or its object; the verb comes last in the target."""
        head_is_object = self._chance(P_OBJECT_RELATIVE)
        verb = self._verb(2 if head_is_object else 1)
        other = self._phrase("nominative" if head_is_object else "accusative", depth) if verb.arguments > 1 else None
        recipient = self._phrase("dative", depth) if verb.arguments > 2 else None
        subject, object_ = (other, head) if head_is_object else (head, other)
        stem = verb.senses[(object_ or subject).category]
        source_verb, finite, infinitive = self._tense(verb, stem, subject.vowel)
        pronoun = "w" + head.vowel + CASES["accusative" if head_is_object else "nominative"]
        if head_is_object:
            source = ["ke", *subject.source, *source_verb]
            target = [pronoun, *subject.target]
        else:
            source = ["ke", *source_verb, *(object_.source if object_ else [])]
            target = [pronoun]
        if recipient:
            source += ["to", *recipient.source]
            target += recipient.target
        if object_ and not head_is_object:
            target += object_.target
        return source, [*target, *infinitive, finite]

    def _tense(self, verb: Verb, stem: str, vowel: str) -> tuple[list[str], str, list[str]]:
        """Source words, finite target verb in agreement with `vowel`, and the infinitive beside an auxiliary."""
        chance = self._draw.unit()
        if chance < P_FUTURE and not self._plain:
            return ["va", verb.source], f"w{vowel}r", [stem + "en"]
        if chance < P_FUTURE + P_PAST:
            return [verb.source + "ed"], f"ge{stem}{vowel}t" if verb.strong else f"{stem}d{vowel}t", []
        return [verb.source], f"{stem}{vowel}t", []

    def _verb(self, arguments: int) -> Verb:
        """A verb of at least so many arguments."""
        while True:
            verb = self._pick(self._words.verbs)
            if verb.arguments >= arguments:
                return verb

    def _number(self) -> int:
        least, most = ((2, 10), (2, 10), (10, 100), (100, 1000))[self._draw.below(4)]
        return least + self._draw.below(most - least)

    def _pick(self, words: list[T]) -> T:
        return words[self._draw.zipf(self._words.weights[len(words)])]

    def _chance(self, p: float) -> bool:
        return self._draw.unit() < p

    def _hard(self, p: float) -> bool:
        return not self._plain and self._chance(p)


def _it(antecedent: Phrase, source: str, case: str) -> Phrase:
    return Phrase([source], ["h" + antecedent.vowel + CASES[case]], antecedent.vowel, antecedent.category)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


class Builtin:
    """The generated pairs: `pairs` for training, `HELD_OUT` each in val and test, no source sentence twice."""

    def __init__(self, pairs: int, seed: int):
        self._pairs, self._seed = pairs, seed

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Pairs of one split. Val and test do not depend on how many pairs training has."""
        if split not in SPLITS:
            raise UserError(f"data: the built-in corpus has no split '{split}': {nearest(split, SPLITS)}")
        words, taken = Lexicon(self._seed), set()
        for name in ("test", "val", "train"):
            grammar = Grammar(words, Draw(name, self._seed))
            missing = self._pairs if name == "train" else HELD_OUT
            while missing:
                source, target = grammar.sentence()
                if source in taken or source.count(" ") >= LONGEST:
                    continue
                taken.add(source)
                missing -= 1
                if name == split:
                    yield source, target
            if name == split:
                return

    def fingerprint(self) -> str:
        """Text that changes whenever the generator does: its source, its constants, size and seed."""
        modules = (lexicon, inspect.getmodule(Grammar))
        constants = [sorted((k, v) for k, v in vars(m).items() if k.isupper() and k != "T") for m in modules]
        digest = hashlib.sha256("".join(inspect.getsource(m) for m in modules).encode()).hexdigest()
        return f"{digest} {constants} pairs={self._pairs} seed={self._seed}"
