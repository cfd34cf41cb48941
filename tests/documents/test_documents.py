"""The documents: short sentences in the field's words, a reference of all there is, pages without a dead link."""

import re
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

import lightning_tfm
from lightning_tfm.cli.arguments import documentation
from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.config import Model
from lightning_tfm.study.rows import all_rows
from tests.helpers.documents import PAGES, ROOT, load
from tests.helpers.studies import Generator

generated = load("generated")
FIELDS = [(section, f.name, cls) for section, cls in generated.SECTIONS.items() for f in fields(cls)]


def test_the_reference_has_every_field_with_its_default_and_identity():
    page = generated.fields_page()
    for section, name, _ in FIELDS:
        (line,) = re.findall(rf"^\| `{section}\.{name}` \|(.*)\|$", page, re.MULTILINE)
        kind, default, meaning, identity = (cell.strip() for cell in line.replace("\\|", "").split("|"))
        assert kind and default and identity, name
        assert meaning, f"{section}.{name} has no docstring"


def test_the_identities_are_those_of_the_hashes():
    assert generated.identity("trainer", "devices") == "no"
    assert generated.identity("model", "h") == "run"
    assert generated.identity("model", "tie") == "run, where it acts"
    assert generated.identity("evaluation", "beam") == "scores"
    assert generated.identity("data", "vocab_size") == "through the text"


def test_the_reference_has_every_verb_with_its_options():
    page = generated.verbs_page()
    parts = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert parts.keys() == VERBS.keys()
    for verb, text in parts.items():
        for action in generated.own_options(generated.parser_of(verb)):
            assert action.help, f"{verb} {action.dest} has no help"
            assert all(f"{option}" in text for option in action.option_strings or [action.dest]), (verb, action.dest)
    assert "--watch" in parts["status"] and "--config" in parts["fit"] and "--model.h" not in parts["fit"]


def test_the_reference_has_every_exit_code_and_so_has_help(capsys):
    from lightning_tfm.runs.outcome import EXIT_CODES, STOPPED, meanings

    page = generated.codes_page()
    assert meanings().keys() == {*EXIT_CODES.values(), *STOPPED, 141}
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for code, text in meanings().items():
        assert text and f"| {code} | {text} |" in page and text in said, code


def test_the_page_on_python_has_every_name_that_its_users_call_and_says_what_is_stable():
    page = generated.python_page()
    assert "stable" in page and "may move" in page
    parts = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert parts == [*sorted(lightning_tfm._HOME), "StudyResults", "RunResults"]
    for name in ("attention.md", "howto/notebook.ipynb", "howto/python.md"):
        text = generated.copied(f"docs/{name}", "also/any")
        for member in re.findall(
            r"\b(?:run|study)\.(\w+)", "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        ):
            assert re.search(rf"^`\.{member}\b", page, re.MULTILINE), f"{name}: {member}"


def test_links_are_turned_to_the_pages():
    turn = generated.inside
    assert turn("howto/wmt", "[code](../../ARCHITECTURE.md)") == "[code](../also/architecture.md)"
    assert turn("also/contributing", "[notes](../../NOTES.md)") == "notes"
    assert turn("benchmarks", "[all](../benchmarks/results)") == "all"
    assert turn("howto/wmt", "[a](data.md#b), [c](https://d.e)") == "[a](data.md#b), [c](https://d.e)"
    assert turn("howto/wmt", "[f](../reference/index.md#fields)") == "[f](../reference/fields.md)"
    assert turn("reference/index", "## Commands\n\nAll.") == "## [Commands](commands.md)\n\nAll."
    assert "](../../CITATION.cff)" in generated.copied("README.md", "also/readme")


def test_a_committed_table_has_the_title_of_its_study():
    for folder, title in (("layers", "Layer types"), ("miniature", "Table 3 of the paper"), ("manpages", "manpages")):
        page = generated.copied(f"experiments/results/{folder}/table.md", f"also/table-{folder}")
        assert page.startswith(f"# Table: {title}\n")


def test_every_picture_is_one_that_the_script_takes_and_is_shown():
    taken = {f"{shot.name}.png" for shot in load("screenshots").SHOTS}
    assert taken == {path.name for path in (ROOT / "docs/_static/screens").iterdir()}
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert taken == set(re.findall(r"_static/screens/([\w-]+\.png)", text))


def test_code_that_a_page_includes_is_there():
    found = []
    for path in (ROOT / "docs").rglob("*.md"):
        for file, name in re.findall(r"{literalinclude} (\S+)\n:pyobject: (\w+)", path.read_text(encoding="utf-8")):
            source = (path.parent / file).read_text(encoding="utf-8")
            found.append(name)
            assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{path.name}: {name}"
    assert len(found) > 3


class Page(HTMLParser):
    """What a page names: ids, links, and what a browser would fetch to show it."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        named = {key: value or "" for key, value in attrs}
        self.ids |= {named[key] for key in ("id", "name") if key in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        self.fetched += [named[key] for key in ("src", "href") if key in named and tag in ("img", "script", "link")]


@pytest.mark.long
def test_the_pages_build_without_a_warning_and_every_link_leads_somewhere(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, "docs", str(tmp_path / "pages")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path: Page(path) for path in (tmp_path / "pages").rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 10
    assert "--seeds auto" in (tmp_path / "pages/reference/commands.html").read_text(encoding="utf-8"), (
        "two dashes as one"
    )
    for path, page in pages.items():
        for link in page.fetched:
            assert not link.startswith(("http", "//")), f"{path.name} needs the internet for {link}"
        for link in [*page.links, *page.fetched]:
            target, _, anchor = unquote(link).partition("#")
            if link.startswith(("http", "mailto:", "data:")):
                continue
            there = (path.parent / target.partition("?")[0]).resolve() if target else path
            assert there.exists(), f"{path.name}: {link}"
            if anchor and there in pages:
                assert anchor in pages[there].ids, f"{path.name}: {link}"


TERMS = re.findall(
    r"[^,\s][^,]*",
    """shifted right, sub-layer, multi-head, leftward, label smoothing, warmup_steps, length penalty, transduction,
    hidden states, anaphora, semi-supervised, teacher forcing, inverse square root, english-french, bytenet, ensembles,
    memory networks, checkpoint averaging""",
)


def test_the_paper_s_terms_lead_to_fields_and_names_that_there_are():
    page = (ROOT / "docs/terms.md").read_text(encoding="utf-8")
    known = {f"{section}.{name}" for section, name, _ in FIELDS}
    fields_named = re.findall(rf"`((?:{'|'.join(generated.SECTIONS)})\.\w+)", page)
    assert len(fields_named) > 30 and set(fields_named) <= known
    for name, path in re.findall(r"`(\w+)` in \[[\w/.]+\]\(\.\./([\w/.]+)\)", page):
        assert re.search(rf"(def|class) {name}\b", (ROOT / path).read_text(encoding="utf-8")), name
    for term in TERMS:
        assert term in page.lower(), term


def shape(printed: str) -> list[str]:
    """Its lines with every number as N, whatever the width of a column."""
    lines = [re.sub(r"[+−-]?\d+(\.\d+)?", "N", line) for line in printed.strip().splitlines()]
    return [re.sub(r"─+", "─", " ".join(line.split())) for line in lines]


def test_the_table_that_the_tutorial_shows_is_what_is_printed_of_its_rows_and_seeds(tmp_path, capsys):
    """With other numbers in it: the runs are invented, and three seeds have no verdict whatever they are."""
    text = (ROOT / "docs" / "first-ablation.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL))
    (tmp_path / "my-rows.yaml").write_text(files["my-rows.yaml"])
    sweep = yaml.safe_load(files["my-sweep.yaml"])
    rows, seeds = (sweep["parameters"][key]["values"] for key in ("row", "seed"))
    known = all_rows([tmp_path / "my-rows.yaml"])
    Generator(tmp_path, [known[name] for name in rows], seeds[:3], sweep["name"]).write_all({"both": 0.07})
    assert main(["table", sweep["name"], "--out", str(tmp_path)]) == 0
    (shown,) = re.findall(r"what `table mine` prints here[^\n]*:\n\n```text\n(.*?)```", text, re.DOTALL)
    printed = capsys.readouterr().out
    assert shape(printed[printed.index("differences to base") :])[: len(shape(shown))] == shape(shown)


# --- how the documents are written: short sentences, the field's words, and no more text than can be read ---


READ = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md")), *PAGES]
"""what a reader is led to; pre-registrations and the notebook apart, which keep the words of their day"""
LONGEST = 35
"""words of a sentence"""
MOST = 30_000
INSTEAD = dict(
    line.split(" -> ")
    for line in Path(__file__).with_name("private_words.txt").read_text(encoding="utf-8").splitlines()[1:]
)


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


@pytest.mark.parametrize("path", [path for path in READ if path.name != "ARCHITECTURE.md"], ids=name)
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
