"""Words of the package."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightning_tfm.cli.arguments import documentation
from lightning_tfm.config import Model
from lightning_tfm.plural_words import plural

PACKAGE = Path(__file__).parents[1] / "lightning_tfm"
HASHED = {f"data/{name}.py" for name in ("builtin", "lexicon", "chains", "trees", "treebank")}
"""their sources are part of the names of stores: not a byte changes"""
INSTEAD = {
    r"\binvented (language|text)\b": "synthetic language",
    r"(?<![=\w-])pieces?\b(?![=:.\w-])": "token",
    r"\b(over|on) (a|the) memory\b": "cross-attention",
    r"\bregimes?\b(?! \|)": "training setup",
    r"\bfirst code\b": "tensor2tensor",
    r"\bfalls? off\b|\bcarr(y|ies) on\b": "degrades, extrapolates",
    r"\bhead(s)? at zero\b|\bhead after another at zero\b": "head ablation",
    r"\b(tokens?|steps?|sentences?|pairs?) a (second|parameter|step|minute|sentence)\b": "per",
    r"\binterim looks?\b|\blooks so far\b|\bno look to come\b": "interim analysis",
    r"\bwords (go by|are to)\b": "verdicts",
    r"\bclear rows?\b|\bclear in the paper\b": "differs in the paper",
    r"\bas printed by\b|\bprinted (counts|difference|numbers)\b": "published",
    r"\b(dev|test|training) text\b": "dev set, test set, training data",
    r"\bas ever\b|\bsurely\b|\bin its place\b": "nothing: leave it out",
    r"\bended badly\b|\bfor certain\b": "Failed runs; significant",
}
"""words of no use to one who knows the field -> what to say; tests/documents/test_documents.py has the documents'"""


def private(text: str) -> list[str]:
    return [f"{found[0]!r}: say {say}" for word, say in INSTEAD.items() for found in re.finditer(word, text, re.I)]


def said(source: str) -> Iterator[str]:
    """Strings of a module that have a blank in them and are no docstrings: what people may read."""
    tree = ast.parse(source)
    bodies = [body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)]
    documents = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            if " " in node.value.strip():
                yield node.value


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if name(path) not in HASHED]
TEMPLATES = sorted(PACKAGE.rglob("*.html"))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_messages_are_in_the_field_s_words(path):
    kept = {"other pieces"}  # a key of reports in JSON
    assert not private("\n".join(text for text in said(path.read_text(encoding="utf-8")) if text not in kept))


@pytest.mark.parametrize("path", TEMPLATES, ids=name)
def test_pages_are_in_the_field_s_words(path):
    text = re.sub(r"{[{%#].*?[}%#]}|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not private(text)


@pytest.mark.parametrize("module", [Model.__module__, "lightning_tfm.config"])
def test_fields_are_explained_in_the_field_s_words(module):
    texts = documentation(module)
    assert len(texts) > 20
    assert not private("\n".join(texts.values()))


FILES = sorted(path for folder in ("experiments", "sweeps") for path in (PACKAGE.parent / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_files_are_in_the_field_s_words(path):
    """Their comments, labels and questions; keys and values of fields stay."""
    text = path.read_text(encoding="utf-8")
    assert not private("\n".join(re.findall(r"#.*$|label: [^,}]*|^(?:title|question): .*$", text, re.MULTILINE)))


def test_a_private_word_is_seen():
    found = list(said('def f():\n    """A piece."""\n    raise E(f"{n} pieces a second")\n'))
    assert found == [" pieces a second"] and len(private(found[0])) == 1 and private("over the memory")
    assert not private("data.tokenizer=pieces")


@pytest.mark.parametrize(("n", "said"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (10_000, "10,000 runs")])
def test_one_is_singular(n, said):
    assert plural(n, "run") == said


def test_no_verb_counts_runs_threads_or_devices_without_their_number():
    """Where one is possible."""
    counts = re.compile(
        r"\{[^{}]*(?:len\(|count|runs|devices|get_num_threads)[^{}]*\} (?:runs|threads|devices|files)\b"
    )
    found = [
        line.strip()
        for path in (PACKAGE / "cli").glob("*.py")
        for line in path.read_text().splitlines()
        if counts.search(line)
    ]
    assert found == []
