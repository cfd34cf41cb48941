"""`translate`: standard input or a file of any length, line by line, in order, with a trained run."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, cast

from lightning_tfm.cli.arguments import make_parser
from lightning_tfm.cli.show.evaluate import find
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import check_accelerator
from lightning_tfm.runs.process.threads import check_cores

if TYPE_CHECKING:
    from lightning_tfm.inference.load import Translation

PROGRESS = 2.0
"""seconds between two lines of progress"""


def main(verb: str, argv: Sequence[str]) -> int:
    text = "Translate a text, one sentence per line, with a trained run."
    parser = make_parser(verb, text, of_run=True)
    parser.add_argument("--input", help="file to translate [standard input]")
    parser.add_argument("--to", help="file to write [standard output]")
    parser.add_argument("--n_best", type=int, default=1, help="translations of each line: number ||| text ||| score")
    parser.add_argument("--scores", action="store_true", help="score and a tab before each translation")
    parser.add_argument("--packed", action="store_true", help="on CPUs: faster matrix products, equal up to rounding")
    folder, experiment, settings = find(parser, argv, "accelerator", "devices", "threads", "keep_memory")
    options, hardware = settings.verb, settings.hardware
    check_accelerator(hardware)
    check_cores(hardware)
    if not 1 <= options["n_best"] <= experiment.evaluation.beam:
        raise UserError(f"--n_best={options['n_best']}: from 1 to evaluation.beam={experiment.evaluation.beam}")

    from lightning_tfm.inference.load import open_trained, translate

    with ExitStack() as stack:
        source, target = _open(options, stack)
        began = last_line = time.monotonic()
        try:
            start = partial(open_trained, folder, experiment, hardware, options["packed"])
            for number, translations in enumerate(translate(start, hardware.devices, source, options["n_best"]), 1):
                _write(target, number, translations, options)
                if time.monotonic() - last_line > PROGRESS and (options["to"] or not sys.stdout.isatty()):
                    last_line = time.monotonic()
                    print(f"{number} lines, {number / (last_line - began):.1f} a second", file=sys.stderr, flush=True)
        except UnicodeDecodeError as error:
            raise UserError(f"{options['input'] or 'standard input'} is not UTF-8 ({error.reason})") from error
    return 0


def _open(options: dict[str, Any], stack: ExitStack) -> tuple[TextIO, TextIO]:
    if not options["input"]:
        cast(TextIOWrapper, sys.stdin).reconfigure(encoding="utf-8-sig", newline="\n")
    if not options["to"]:
        cast(TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8", newline="\n")
    try:
        source = open(options["input"], encoding="utf-8-sig", newline="\n") if options["input"] else None
        target = open(options["to"], "w", encoding="utf-8", newline="\n") if options["to"] else None
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    for file in (source, target):
        if file is not None:
            stack.enter_context(file)
    return source or sys.stdin, target or sys.stdout


def _write(target: TextIO, number: int, translations: "list[Translation]", options: dict[str, Any]) -> None:
    flush = target is sys.stdout and target.isatty()
    if options["n_best"] > 1:
        for translation in translations:
            print(f"{number} ||| {translation.text} ||| {translation.score:.6f}", file=target, flush=flush)
    elif options["scores"]:
        print(f"{translations[0].score:.6f}\t{translations[0].text}", file=target, flush=flush)
    else:
        print(translations[0].text, file=target, flush=flush)
