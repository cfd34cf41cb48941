"""Colours of the pages as the colour-blind see them, in both schemes.

Simulated: dichromats by Machado, Oliveira and Fernandes (2009), "A physiologically-based model for simulation of color
vision deficiency", IEEE TVCG 15(6), table of severity 1.0, on linear RGB. Asked for: CIE76 distances of 20 at least.
That is Stone, Albers Szafir and Setlur (2014), "An engineering model for color difference as a function of size",
Color and Imaging Conference: half of all viewers notice 5.349 + 2.871 / s on their least sensitive axis, b*, which for
a mark of s = 0.2 degrees (9 px of CSS's 0.0213 degrees each) is 19.7.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import lightning_tfm.report
from lightning_tfm.report.wording.verdict_words import Verdict

LEAST = 20.0
SEEN_BY = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""of linear sRGB, D65"""
TEMPLATES = Path(lightning_tfm.report.__file__).parent / "templates"


def schemes() -> dict[str, dict[str, str]]:
    """light and dark: name -> #rrggbb."""
    light, dark = (TEMPLATES / "report.css").read_text().split("prefers-color-scheme: dark", 1)
    found = [dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{3,6})", css)) for css in (light, dark.split("* {")[0])]
    return {"light": found[0], "dark": found[0] | found[1]}


def linear(colour: str) -> np.ndarray:
    """RGB of #rrggbb or #rgb as light."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    srgb = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour through the eyes of `seen`."""
    ratio = XYZ @ np.clip(seen @ linear(colour), 0, 1) / XYZ.sum(axis=1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, seen: np.ndarray) -> float:
    return float(np.linalg.norm(lab(one, seen) - lab(other, seen)))


def test_the_measure_knows_published_values():
    """sRGB's red and white in L*a*b*; red and green that only a deuteranope takes for alike."""
    assert lab("#ff0000", np.eye(3)) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert lab("#fff", np.eye(3)) == pytest.approx([100, 0, 0], abs=0.02)
    alike = "#a35c00", "#6f7a00"
    assert distance(*alike, SEEN_BY["deuteranopia"]) < LEAST < distance(*alike, np.eye(3))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN_BY)
def test_colours_of_verdicts_and_of_trials_are_told_apart(scheme, eyes):
    """Each pair of them may lie side by side: in the bar of verdicts, the table, the pictures of a search."""
    css = (TEMPLATES / "report.css").read_text() + (TEMPLATES / "pictures.css").read_text()
    named = {
        style: name
        for names, name in re.findall(r"^\.([a-z, .]+) \{ color: var\(--([a-z]+)\) \}", css, re.M)
        for style in names.split(", .")
    }
    verdicts = {named[word.style] for word in Verdict}
    assert {"good", "bad", "found", "apart", "open"} == verdicts
    trials = {named[style] for style in ("best", "better", "rest")}
    palette = schemes()[scheme]
    near = {
        pair: round(distance(*(palette[name] for name in pair), SEEN_BY[eyes]), 1)
        for group in (verdicts, trials)
        for pair in combinations(sorted(group), 2)
    }
    assert {pair: apart for pair, apart in near.items() if apart < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_verdicts_are_theirs_alone_and_can_be_read(scheme):
    """2.3 is just noticed in CIE76 (Mahy, Van Eycken and Oosterlinck 1994); WCAG 2 asks for a contrast of 4.5."""
    sheets, palette = [(TEMPLATES / name).read_text() for name in ("report.css", "pictures.css")], schemes()[scheme]
    assert (Verdict.BETTER.style, Verdict.WORSE.style) == ("found", "apart")
    coloured = {word.style for word in Verdict} - {"open", "untested"}
    for name in coloured:
        for ground in ("bg", "panel"):
            dim, bright = sorted(luminance(palette[colour]) for colour in (name, ground))
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (name, ground)
        others = {other: distance(palette[name], palette[other], np.eye(3)) for other in palette.keys() - coloured}
        assert min(others.values()) > 2.5 * 2.3, (name, others)
        assert sum(sheet.count(f"var(--{name})") for sheet in sheets) == 1, f"{name} is for verdicts"


def luminance(colour: str) -> float:
    return float(XYZ[1] @ linear(colour))
