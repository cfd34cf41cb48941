"""Sphinx builds these pages with `make docs`; the reference is written from the code just before they are read."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generated  # noqa: E402  docs/generated.py, beside this file

project = "lightning_tfm"
copyright = "the authors of lightning_tfm"
extensions = ["myst_parser"]
exclude_patterns = ["Thumbs.db"]
myst_heading_anchors = 3
nitpicky = True
smartquotes = False  # they would make one dash of an option's two
html_theme = "pydata_sphinx_theme"
html_title = "lightning_tfm"
html_static_path = ["_static"]
html_css_files = ["own.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": []}
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "logo": {"text": "lightning_tfm"},
}


def setup(app):
    app.connect("builder-inited", lambda app: generated.write(HERE))
    app.connect("source-read", lambda app, page, source: source.__setitem__(0, generated.inside(page, source[0])))
