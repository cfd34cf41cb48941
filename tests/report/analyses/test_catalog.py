"""An analysis is one line of the catalog: every format, the page and the dashboard have what it says."""

import json
import re

import pytest
from markupsafe import Markup

from lightning_tfm.dashboard.reports import Reports
from lightning_tfm.report.analyses.catalog import ANALYSES
from lightning_tfm.report.blocks import Figures, Section, Text
from lightning_tfm.report.study_report import make
from lightning_tfm.report.summary import Analysis
from tests.golden import printed
from tests.helpers.studies import Generator


def section(key: str, after: str) -> Section:
    return Section(key, f"Title of {key}", [Figures([(Markup("<svg></svg>"), "")]), Text([f"said of {key}"])], after)


SECTIONS = [section("third", "second"), section("second", "quality"), section("stray", "not on the page")]
ADDED = Analysis(
    key="added",
    find=lambda cells, report: {"rows": len(report.rows)},
    sections=lambda found, report: SECTIONS,
    lead=lambda found, report: ["a lead of it"],
    notes=lambda found, report: ["a note of it"],
    notes_in_latex=True,
    brief=lambda found, report: ["brief of it"],
    on_dashboard=True,
    in_text=True,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("c"), ["base", "A-h1", "C-N2"], [1, 2])
    made.write_all({"A-h1": 0.2})
    ANALYSES.append(ADDED)
    yield made
    ANALYSES.remove(ADDED)


def test_every_format_has_what_an_analysis_says(study):
    report = make("made", study.root)
    assert json.loads(report.render("json"))["added"] == {"rows": 3}
    page, markdown = report.render("html"), report.render("markdown")
    assert all(words in page for words in ("a lead of it", "a note of it", "said of second"))
    assert "a note of it" in markdown and "said of second" in markdown
    assert "A note of it" in report.render("latex")
    shown = printed("table", "made", "--out", str(study.root))
    assert "brief of it" in shown and "said of second" in shown, "a terminal's table has what Markdown's has"


def test_a_section_follows_any_other_and_none_is_lost(study):
    keys = re.findall(r'<section id="section-(\w+)"', make("made", study.root).render("html"))
    at = keys.index("quality")
    assert keys[at : at + 3] == ["quality", "second", "third"] and keys[-1] == "stray"


def test_a_picture_on_the_dashboard_has_the_title_of_its_section(study):
    shown = Reports(study.root).forest("made")
    assert shown.count("<h3>") == len(SECTIONS) and "<h3><bdi>Title of second</bdi></h3>" in shown
    assert "said of second" not in shown
