"""How the documents are written: short sentences, the field's words, and no more text than can be read."""

import re
from pathlib import Path

import pytest

from lightning_tfm.cli.arguments import documentation
from lightning_tfm.cli.main import VERBS
from lightning_tfm.config import Model
from tests.helpers.documents import load

ROOT = Path(__file__).parents[2]
READ = [ROOT / name for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
READ += [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.parent.name not in ("also", "preregistration")
    and (path.parent.name != "reference" or path.name == "index.md")
]
"""what a reader is led to; pre-registrations and the notebook apart, which keep the words of their day"""
GUIDES = [path for path in READ if path.parent.name == "howto" or path.name in ("README.md", "install.md")]
GUIDES += [ROOT / "docs" / name for name in ("first-ablation.md", "attention.md")]
LONGEST = 35
"""words of a sentence of README, tutorials, how-tos and help"""
MOST = 30_000
INSTEAD = {
    r"invented language": "synthetic language",
    r"\bover the memory\b": "cross-attention",
    r"\b(a|no|without|each|every) verbs?\b": "command",
    r"\bregimes?\b": "training setup",
    r"interim looks?\b": "interim analysis",
    r"falls? off\b": "degrades",
    r"\bfirst code\b": "the authors' tensor2tensor code",
    r"\b(one|single) stack\b(?! (of|has))": "decoder-only",
    r"\bpieces?\b(?!`)": "token (SentencePiece's own name and `data.tokenizer: pieces` stay)",
    r"\bprinted by the paper\b|\bpaper prints\b|\bprinted difference\b": "published",
    r", for (a|the|it|there|their|an|that|this|its|one|all|no)\b [^.;]*\b(is|are|has|have|needs|asks)\b": "because",
    r"\b(tokens?|steps?|sentences?|pairs?) a (second|parameter|step|minute)\b": "per",
    r"\bcell refuses\b|\btable asks\b|\bpage says\b": "the program does it",
}
"""words of no use to a reader who knows the field -> what to say; tests/test_words.py has those of the program"""


def prose(text: str) -> list[str]:
    """Paragraphs and items of lists; no code, tables, headings, pictures; links and code in passing as words."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<picture>.*?</picture>|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"^(#|\||    ).*$", "", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|^\s*(?:-|\d+\.) ", text, flags=re.MULTILINE)]


def sentences(text: str) -> list[str]:
    """A semicolon and a colon end one, too."""
    return [part for whole in prose(text) for part in re.split(r"(?<=[.;:?!])[\"*)]* ", whole) if part]


def long_sentences(text: str) -> list[str]:
    return [found for found in sentences(text) if len(re.findall(r"\w[\w.,'’×-]*", found)) > LONGEST]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_sentences_are_short(path):
    assert not long_sentences(path.read_text(encoding="utf-8"))


def test_help_is_short():
    generated = load("generated")
    told = [text for module in (Model.__module__, "lightning_tfm.config") for text in documentation(module).values()]
    for parser in map(generated.parser_of, VERBS):
        told += [parser.description or "", *(action.help or "" for action in generated.own_options(parser))]
    assert len(told) > 300 and not [text for text in told if long_sentences(text)]


def test_a_long_sentence_is_seen():
    assert long_sentences("Short. " + "word " * 36 + "end. Short again.")
    assert not long_sentences("word " * 30 + "; " + "word " * 30 + ".")


def private(text: str) -> list[str]:
    """Words that a reader of the field does not know, each with what to say instead."""
    plain = "\n".join(prose(text))
    return [f"{found[0]!r}: say {say}" for word, say in INSTEAD.items() for found in re.finditer(word, plain, re.I)]


@pytest.mark.parametrize("path", READ, ids=name)
def test_words_are_the_field_s(path):
    assert not private(path.read_text(encoding="utf-8"))


def test_a_private_word_is_seen():
    assert private("Trained on an invented\nlanguage.") and private("330,000 tokens a second")
    assert private("Take five seeds, for a verdict needs five.") and not private("A test for a row.")


def words(path: Path) -> int:
    """As `wc -w` counts: whatever stands between blanks, bars of tables and programs included."""
    return len(path.read_text(encoding="utf-8").split())


def linked(path: Path) -> set[Path]:
    """Pages of the repository that a page links to; what records printed, and pre-registrations, apart."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)", path.read_text(encoding="utf-8"))
    pages = {(path.parent / target).resolve() for target in targets if "://" not in target}
    return {
        page for page in pages if page.parent.name != "preregistration" and page.name not in ("table.md", "NOTES.md")
    }


def test_all_of_it_can_be_read():
    assert set().union(*map(linked, READ)) <= set(READ), "a page that is not counted"
    assert sum(map(words, READ)) <= MOST
    assert words(ROOT / "CHANGELOG.md") <= 400


FINDINGS = [path for path in READ if path.parent.name == "results" and path.name != "index.md"] + [
    ROOT / "docs/claims.md"
]


@pytest.mark.parametrize("path", FINDINGS, ids=name)
def test_a_finding_opens_with_its_answer_and_its_picture(path):
    text = path.read_text(encoding="utf-8")
    title, answer, so_what, scope, picture, *rest = text.split("\n\n")
    assert title.startswith("# ")
    for part, word in ((answer, "Answer."), (so_what, "So what?"), (scope, "Scope.")):
        assert part.startswith(f"**{word}** ") and len(part.splitlines()) <= 12
    drawn = re.fullmatch(r"!\[[^]]+\]\(([^)]+)\)", picture)
    assert drawn and (path.parent / drawn[1]).is_file()
    assert any("ake it again" in part for part in rest[:2])
