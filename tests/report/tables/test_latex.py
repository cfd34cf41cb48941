"""LaTeX worth pasting: the columns that were asked for, harmless names, and pdfTeX takes it without a warning."""

import re
import shutil
import subprocess
import warnings
from dataclasses import replace

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.report import archive
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.render.latex import latex
from lightning_tfm.report.study_report import make, write_table
from lightning_tfm.report.tables.columns import COLUMNS, SYMBOLS
from lightning_tfm.report.tables.paper_table import TESTS, Layout, paper_latex
from tests.golden import printed
from tests.helpers.calling import ROOT
from tests.helpers.studies import Generator, own_row

MINE = own_row("_&%$#{~^\\é", {"model.h": 2}, "group_1")
DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage[utf8]{inputenc}
\usepackage{array,booktabs}
\begin{document}
%s
\end{document}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rows = ["base", "A-h1", "C-N2", "E-learned", MINE]
    found = Generator(tmp_path_factory.mktemp("r"), rows, [1, 2, 3], "m_1")
    found.write_all({"A-h1": 0.3, "C-N2": -0.2}, skip=[("E-learned", 2), ("E-learned", 3)])
    return found


@pytest.fixture(scope="module")
def report(made):
    return make("m_1", made.root).summary


def lines_of(text):
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line)] for line in body.splitlines() if line.endswith(r"\\")
    ]


def test_what_can_be_asked_for(report):
    bare = paper_latex(report, Layout(tests="none", paper=False, caption="Mine.", label="tab:mine"))
    assert r"\caption{Mine.}" in bare and r"\label{tab:mine}" in bare and "5.29" not in bare
    assert r"\Delta" not in bare and r"$\bullet$" not in bare
    with_p = paper_latex(report, Layout(tests="p"))
    assert "$p$" in lines_of(with_p)[1] and r"$\bullet$" not in with_p
    for text in (bare, with_p):
        assert len({len(line) for line in lines_of(text)[1:]}) == 1


def test_the_verbs(made, capsys):
    out = ["--out", str(made.root), "--format", "latex"]
    said = printed("report", "m_1", "--tests", "p", "--no-paper", "--label", "tab:x", *out)
    assert r"\label{tab:x}" in said and "$p$" in said and "5.29" not in said
    said = printed("table", "m_1", "--caption", "Two.", "--tests", "p", *out)
    assert r"\caption{Two.}" in said and "$p$" in said
    assert main(["table", "m_1", "--plain", "--tests", "p", *out]) == 2
    assert "--plain: not together with --tests" in capsys.readouterr().err


def test_what_has_no_glyph_is_named(report):
    other = replace(report.rows[1], name="A-中-h1")  # and in a page of all views: tests/golden/made/own
    text = paper_latex(replace(report, rows=[report.rows[0], other]))
    assert "A-?-h1" in text and "% not in pdfTeX's default fonts, so ? stands for: 中" in text
    assert "stands for" not in paper_latex(report)


def test_names_are_harmless():
    assert latex("a_b & 5%\u202e\\") == r"a\_b \& 5\%\textbackslash{}"
    assert latex("é中 x ≤ ±") == r"é? x ? $\pm$"


def compiled(tables, folder):
    """By how many points they are wider than the page, and what pdflatex says."""
    program = shutil.which("pdflatex")
    if program is None:
        warnings.warn("NO LATEX WAS COMPILED: pdflatex is missing", stacklevel=1)
        pytest.skip("pdflatex is missing: apt-get install texlive-latex-recommended")
    (folder / "t.tex").write_text(DOCUMENT % "\n\\clearpage\n".join(tables))
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=folder, capture_output=True, text=True
    )
    said = (folder / "t.log").read_text(errors="replace")
    assert done.returncode == 0, said[-2000:]
    return re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\) in (?:alignment|paragraph)", said), said


def test_pdftex_takes_it(made, report, tmp_path):
    tables = [paper_latex(report, Layout(tests=tests, paper=paper)) for tests in TESTS for paper in (True, False)]
    tables.append(paper_latex(write_table(read_cells(made.study, made.root))))
    wide, said = compiled(tables, tmp_path)
    assert not wide, f"wider than the page by {wide} pt"
    assert re.search(rf"Output written on t.pdf \({len(tables)} pages", said)


@pytest.mark.long
@pytest.mark.parametrize("name", ["norm", "parsing", "layers", "modern", "miniature-8-epochs", "r2-builtin"])
def test_published_studies_fit_the_page(name, tmp_path):
    """A grid with its effects, seven metrics, long fields and words, the paper's numbers beside ours, wide ends."""
    study, _, _ = archive.unpack(ROOT / f"experiments/results/{name}/records.tar.xz", tmp_path)
    summary = make(study, tmp_path).summary
    tables = [paper_latex(summary, Layout(tests=tests)) for tests in TESTS]
    wide, _ = compiled(tables, tmp_path)
    assert not wide, f"wider than the page by {wide} pt"
    heads = "".join(tables)
    if name == "norm":
        assert r"\label{tab:norm-effects}" in heads and "\nrow &" not in heads
    if name == "parsing":
        assert heads.count("exact (dev)") == len(TESTS) and r"More metrics of Table~\ref{tab:parsing}." in heads


def test_a_caption_has_at_most_three_lines_and_the_rest_stands_below(report):
    """170 mm at 10 points hold some 100 characters."""
    for tests in TESTS:
        text = paper_latex(report, Layout(tests=tests))
        caption = re.search(r"\\caption\{(.*)\}\n", text)[1]
        assert len(re.sub(r"\\[A-Za-z]+|[${}\\]", "", caption)) <= 300, tests
        assert text.index(r"\end{tabular}") < text.index("geometric mean") and "marginal" not in text[-900:]


def test_no_word_is_set_as_a_product_of_letters():
    heads = " ".join([*(column.latex for column in COLUMNS.values()), *SYMBOLS.values()])
    maths = re.findall(r"\$([^$]+)\$", re.sub(r"\\mathrm\{\w+\}|\\[a-z]+", "", heads))
    assert maths and not [one for one in maths if re.search("[A-Za-z]{2}", one)]
