"""`translate`: standard input to standard output with a trained run, line by line."""

import sys
from collections.abc import Sequence

from lightning_tfm.cli.arguments import make_parser
from lightning_tfm.cli.score import find
from lightning_tfm.errors import UserError


def main(verb: str, argv: Sequence[str]) -> int:
    text = "Translate standard input, one sentence a line, to standard output with a trained run."
    folder, experiment, settings = find(make_parser(verb, text), argv)

    import torch

    from lightning_tfm.study.trained import Trained

    if settings.hardware.threads:
        torch.set_num_threads(settings.hardware.threads)
    trained = Trained.open(folder, experiment)
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        for line in trained.translate(sys.stdin):
            print(line, flush=sys.stdout.isatty())
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 ({error.reason})") from error
    return 0
