"""The page and the other formats: harmless, whole, the same bytes for the same records."""

import html as html_module
import html.parser
import json
import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from lightning_tfm.cli.formats import OF_REPORTS
from lightning_tfm.cli.main import main
from lightning_tfm.report import archive
from lightning_tfm.report.build import make
from lightning_tfm.report.pages.document import environment
from lightning_tfm.report.render.latex import latex
from lightning_tfm.study.rows import Paper, Row, all_rows
from tests.helpers.studies import Generator

HOSTILE = "<script>alert('1')</script>\"'&\u202e|$%"


class Parser(html.parser.HTMLParser):
    """Tags, and every attribute that could fetch something."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.links, self.scripts, self.ids = [], [], 0, []
        self.feed(markup)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values[k] for k in ("src", "href", "data", "action") if k in values]
        self.ids += [values["id"]] if "id" in values else []
        self.scripts += tag == "script"
        assert not any(name.startswith("on") for name in values), values
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.links += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    mine = Row(f"mine {HOSTILE}", f"group {HOSTILE}", {"model.h": 2}, Paper(None, None, None), "mine.yaml:1")
    found = Generator(
        tmp_path_factory.mktemp("r"), [*[all_rows()[n] for n in ("base", "A-h1", "E-learned")], mine], [1, 2]
    )
    found.references = [f"{HOSTILE} {line}" for line in found.references]
    found.write_all({"A-h1": 0.3}, skip=[("E-learned", 2)])
    return found


def test_page_is_whole_harmless_and_asks_nobody(made):
    page = make("made", made.root).render("html")
    parsed = Parser(page)
    assert parsed.open == []
    assert parsed.scripts == 1
    assert all(link.startswith(("#", "data:")) for link in parsed.links), parsed.links
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert "<script>alert" not in page and HOSTILE not in page
    assert "default-src 'none'" in page
    assert (
        "<bdi>mine &lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&#39;&amp;\u202e|$%</bdi>" in page
    )  # its direction too


def test_templates_escape_what_is_no_markup_and_know_every_name_they_use():
    found = environment()
    names = [name for name in found.list_templates() if name.endswith(".html")]
    assert {"report.html", "search.html"} < set(names)
    for name in names:
        found.get_template(name)  # its syntax
        assert not re.search(r"autoescape|\|\s*safe\b", found.loader.get_source(found, name)[0]), name
    one = found.from_string('<a title="{{ words }}">{{ words }}</a>{{ words | spec("") }}{{ words ~ "" }}')
    assert Parser(shown := one.render(words=HOSTILE)).scripts == 0
    assert html_module.unescape(shown) == f'<a title="{HOSTILE}">{HOSTILE}</a>{HOSTILE}{HOSTILE}'
    with pytest.raises(UndefinedError):
        found.from_string("{{ words.unknown }}").render(words={"known": 1})


def test_an_undecided_row_tells_what_it_could_have_found(generator):
    few = generator(["base", "A-h1", "A-h4"], [1, 2, 3], "few")
    few.write_all({"A-h1": 0.3})
    page = make("few", few.root).render("html")
    assert re.search(r'title="[^"]*a true difference of [\d.]+ % PPL would have been detected with a probability', page)
    words = re.search(r'aria-label="Marks of the words">(.*?)</ul>', page).group(1)
    marks = re.findall(r'<span class="verdict (\w+)"><svg.*?></svg> ([\w ]+)</span>', words)
    assert marks[0] == ("found", "same direction") and ("open", "undecided") in marks
    assert "<strong>same direction</strong>" in page  # Holm's p is below the level too


def test_same_records_same_bytes(made):
    for kind in OF_REPORTS:
        assert make("made", made.root).render(kind) == make("made", made.root).render(kind)


def test_without_text_no_line_of_the_corpus_is_left(made):
    report = make("made", made.root)
    lines = [line for line in report.cells.sources + report.cells.references if len(line) > 12]
    shown, hidden = (html_module.unescape(report.render("html", texts=texts)) for texts in (True, False))
    assert any(line in shown for line in lines)
    assert not any(line in hidden for line in lines)


def test_ten_megabyte_sentence_is_clipped(made):
    folder = made.folder(made.study.rows[1], 1).path
    (path,) = folder.glob("scores/*/val.hyp.txt")
    before = path.read_text()
    path.write_text("x" * 10_000_000 + before[before.index("\n") :])
    try:
        assert len(make("made", made.root).render("html")) < 1_000_000
    finally:
        path.write_text(before)


def test_verb_writes_the_file_and_prints_the_table(made, capsys):
    out = ["--out", str(made.root)]
    assert main(["report", "made", *out]) == 0
    assert (made.root / "studies/made/report.html").read_text().startswith("<!DOCTYPE html>")
    capsys.readouterr()
    assert main(["report", "made", *out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "made"
    assert main(["report", "maid", *out]) == 2


def test_markdown_and_latex_are_tables(made):
    report = make("made", made.root)
    rows = [line for line in report.render("markdown").splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    body = [line for line in report.render("latex").splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(body) == 5 and len({len(re.findall(r"(?<!\\)&", row)) for row in body}) == 1
    assert latex("a_b & 5%\u202e\\") == r"a\_b \& 5\%\textbackslash{}"


def test_no_run_and_one_seed_are_shown_without_a_verdict(generator):
    empty = generator(["base", "A-h1"], [1, 2], "empty")
    assert "0 of 4 runs finished" in make("empty", empty.root).render("html")
    one = generator(["base", "A-h1"], [1], "one")
    one.write_all({"A-h1": 0.5})
    page = make("one", one.root).render("html")
    assert "n=1" in page and 'class="one"' in page.replace("first one", "one")
    row = re.search(r"<tr[^>]*>(?:(?!</tr>).)*A-h1(?:(?!</tr>).)*</tr>", page).group()
    assert "reproduced" not in row and "undecided" not in row


def test_the_report_of_the_front_page_is_light(tmp_path):
    """Table 3 at five seeds; what pointing shows is said once, not in a title of every mark."""
    packed = Path(__file__).parents[3] / "experiments/results/miniature-8-epochs/records.tar.xz"
    study, _, _ = archive.unpack(packed, tmp_path)
    page = make(study, tmp_path).render("html")
    assert len(page.encode()) <= 450_000
    assert page.count("<title>") == 1 and page.count("data-tip=") < 400
    minus = html_module.unescape(re.sub(r"<(script|style|pre|code).*?</\1>|<[^>]+>", " ", page, flags=re.S))
    assert not re.search(r"(?<![\w.-])-\d", minus) and not re.search(r"[+−]0\.0(?!\d)", minus)
