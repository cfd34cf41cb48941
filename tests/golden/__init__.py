"""Every view of committed and of made-up studies, as text: a change of what people read shows in a diff.

`python -m tests.golden` writes them anew, `python -m tests.golden made` those of made-up studies (synthetic.py);
test_golden.py compares.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from lightning_tfm.cli.main import main

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
QUICK = ("norm", "heads-tuned")
STUDIES = (*QUICK, "miniature", "extrapolation", "scores", "layers")
"""folders under experiments/results"""
BLOCK = re.compile(r"</?(?:p|div|tr|li|ul|h\d|section|details|summary|figcaption|table|pre|option|br)\b[^>]*>")
UNSEEN = re.compile(r"<(script|style|svg)\b.*?</\1>|<!--.*?-->", re.DOTALL)


def printed(*argv: str) -> str:
    """What a verb prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(argv)
    assert code == 0, argv
    return out.getvalue()


def visible(page: str) -> str:
    """The words of an HTML page, a line for each of its blocks; pictures and scripts left out."""
    text = unescape(re.sub(r"<[^>]+>", " ", BLOCK.sub("\n", UNSEEN.sub("", page))))
    return "".join(f"{line}\n" for line in (" ".join(part.split()) for part in text.split("\n")) if line)


def views(folder: str, root: Path) -> Iterator[tuple[str, str]]:
    """(file, content) of a committed study, unpacked below `root`."""
    printed("records", "unpack", str(ROOT / f"experiments/results/{folder}/records.tar.xz"), "--out", str(root))
    name = next(path.parent.name for path in sorted(root.glob("studies/*/study.json")))
    out = ("--out", str(root))
    for kind, end in {"text": "txt", "markdown": "md", "csv": "csv", "json": "json", "latex": "tex"}.items():
        width = ("--width", "100") if kind == "text" else ()
        yield f"table.{end}", printed("table", name, "--format", kind, *width, *out)
        if kind != "text":
            yield f"report.{end}", printed("report", name, "--format", kind, "--to", "-", *out)
    row = json.loads((root / "studies" / name / "study.json").read_bytes())["rows"][-1]["name"]
    yield "reference.txt", printed("table", name, "--reference", row, "--width", "100", *out)
    yield "reference.md", printed("table", name, "--reference", row, "--format", "markdown", *out)
    yield "page.txt", visible(printed("report", name, "--to", "-", *out))


def comparison(root: Path) -> Iterator[tuple[str, str]]:
    """(file, content) of two studies side by side, and of five texts pooled."""
    places = []
    for folder in ("miniature", "tatoeba-8-epochs", "tatoeba", "multi30k", "manpages"):
        printed(
            "records", "unpack", str(ROOT / f"experiments/results/{folder}/records.tar.xz"), "--out", str(root / folder)
        )
        places += [str(path.parent) for path in (root / folder).glob("studies/*/study.json")]
    for kind, end in {"text": "txt", "markdown": "md", "csv": "csv", "json": "json"}.items():
        yield f"compare.{end}", printed("compare", *places[:2], "--format", kind, "--to", "-")
    yield "compare.page.txt", visible(printed("compare", *places[:2], "--format", "html", "--to", "-"))
    for kind, end in {"text": "txt", "json": "json", "latex": "tex"}.items():
        yield f"pool.{end}", printed("meta-analysis", *places, "--format", kind)


def plain() -> Iterator[tuple[str, str]]:
    """(file, content) of what needs no study."""
    for kind, end in {"text": "txt", "json": "json"}.items():
        yield f"params.{end}", printed("table", "--params", "--format", kind)
        yield f"table2.{end}", printed("table", "--table2", "--format", kind, "--out", "nowhere")
