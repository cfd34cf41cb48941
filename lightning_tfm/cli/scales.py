"""`--scales 16,8`: the rows of a sweep at several widths, each by the paper's ratios and as a separate study.

Cells are (row, scale, seed). In a sweep file the scales are the values of `miniature.width`, so that W&B's agents run
them, too. The studies NAME-16, NAME-8… are what `scaling` compares.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lightning_tfm.cli.arguments import Parser
from lightning_tfm.cli.study_options import numbers
from lightning_tfm.study.ratios import HOLD
from lightning_tfm.study.sweeps import SCALE, Sweep

Verb = Callable[[str, Sequence[str]], int]


def add_scales(parser: Parser) -> None:
    """The option."""
    about = "divisors of the paper's widths, e.g. 16,8: a study each by the paper's ratios, then `scaling` of them"
    group = next(group for group in parser._action_groups if group.title == "ratios")
    group.add_argument("--scales", metavar="WIDTH,…", help=about)


def scales_of(asked: dict[str, Any], sweep: Sweep) -> list[int]:
    """Those requested, else the file's, the smallest model first; none where it is one study. Raises UserError."""
    found = numbers(asked["scales"], "--scales") if asked["scales"] else sweep.scales
    return sorted(found, reverse=True)


def at_scale(sweep: Sweep, scales: Sequence[int]) -> list[str]:
    """Arguments of the study at its one scale, behind all others."""
    hold = [f"--{HOLD}=ratios"] * (not sweep.scales)  # a file with scales itself says what is held
    return [*(f"--{SCALE}={scale}" for scale in scales), *(hold if scales else ())]


def name_at(name: str, scales: Sequence[int]) -> str:
    """Of the study at its one scale."""
    return "-".join([name, *map(str, scales)])


def each(main: Verb, verb: str, argv: Sequence[str], scales: Sequence[int]) -> int:
    """`main` at one scale after another: the worst exit code."""
    return max(main(verb, [*argv, f"--scales={scale}"]) for scale in scales)
