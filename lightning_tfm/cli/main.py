"""The command line: finds the command, runs it, turns the user's mistakes into one message and exit code 2."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from lightning_tfm.cli.terminal import without_utf_8
from lightning_tfm.errors import UserError
from lightning_tfm.gone import refuse
from lightning_tfm.runs.process.threads import set_idle_policy

GROUPS = {
    "Train": {
        "demo": ("train.demo", "train a tiny model in half a minute and write its report"),
        "fit": ("train.fit", "train one experiment, or one row, and score it"),
        "plan": ("train.plan", "what a sweep would run, what is already finished, and what the rest would take"),
        "sweep": ("train.sweep", "train a study, rows times seeds, and print its table"),
        "tune": ("train.tune", "search for a good configuration; unpromising trials are stopped early"),
        "resume": ("train.resume", "resume a study by its name, as it was started"),
        "work": ("train.work", "join a study as a worker"),
        "data": ("data", "prepare | verify | show: fetch, clean, encode and inspect corpora"),
    },
    "Follow": {
        "status": (
            "show.status",
            "which runs of a study are finished, running, waiting or failed; which studies there are",
        ),
        "dashboard": ("show.dashboard", "studies, searches and runs in the browser, live"),
        "runs": ("show.runs", "list runs, retry or remove one, free disk space"),
        "study": ("show.study", "hide | show: put a row apart from a study's table; it stays in every correction"),
        "doctor": ("doctor", "versions, devices, threads, what is deterministic"),
    },
    "Report": {
        "table": ("show.table", "print the table of a study; --params: the paper's parameter counts"),
        "report": ("show.report", "a study as one HTML file, or its table with tests as Markdown, CSV, JSON, LaTeX"),
        "compare": ("show.compare", "studies with the same rows side by side, with tests"),
        "meta-analysis": ("show.compare", "the same rows over several corpora, pooled as random effects"),
        "scaling": ("show.compare", "the same rows at several model sizes, extrapolated to the paper's"),
        "judge": ("show.judge", "verdicts on scores of your own runs, from a CSV file"),
        "validate": ("show.evaluate", "score the dev set with a trained run"),
        "test": ("show.evaluate", "score the test set with a trained run"),
        "translate": ("show.translate", "translate standard input or a file with a trained run"),
    },
    "Share": {
        "records": ("show.records", "pack | unpack: a study's numbers in one file, without its text"),
        "export": ("show.export", "a run's weights for other programs; curves and scores for TensorBoard and as CSV"),
        "wandb": ("show.wandb", "replay: send a study's records to W&B later"),
    },
    "Explain": {
        "draw": ("show.draw", "the architecture of an experiment as a picture, with its true sizes"),
        "inspect": ("show.inspect", "ablate each attention head of a trained run; score wider beams"),
        "layers": ("show.layers", "Table 1 of the paper, measured: what each layer type costs"),
    },
}
VERBS = {verb: where for group in GROUPS.values() for verb, where in group.items()}
"""command -> module of this package with `main(verb, argv) -> exit code`, and help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lightning-tfm` and return its exit code (runs/outcome.py: meanings)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    set_idle_policy()
    without_utf_8()
    try:
        return _main(arguments)
    except UserError as error:
        print(f"lightning-tfm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        print(f"lightning-tfm: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS):
            print(f"lightning-tfm: {str(error.filename)[:80]}…: {error.strerror}", file=sys.stderr)
            return 2
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"lightning-tfm: no space left on the disk{where}; free some, then run the same command again",
            file=sys.stderr,
        )
        return 79


def _complete() -> None:
    """What a shell offers for the command; for the rest of the line the command's own parser does (argcomplete)."""
    import argparse

    import argcomplete

    *_, words, _ = argcomplete.split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    if len(words) > 1 and words[1] in VERBS:
        os.environ["_ARGCOMPLETE"] = "2"  # the words before the options are two
        import_module(f"lightning_tfm.cli.{VERBS[words[1]][0]}").main(words[1], [])
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("command", choices=VERBS)
    argcomplete.autocomplete(parser)


def _main(arguments: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    verb, *rest = arguments
    if verb == "--version":
        from importlib.metadata import version

        print(version("lightning_tfm"))
        return 0
    if verb not in VERBS:
        refuse(verb)
        from lightning_tfm.suggestions import nearest_verb

        raise UserError(f"unknown command '{verb}': {nearest_verb(verb, VERBS)}")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the working directory was removed; change to one that exists") from None
    return import_module(f"lightning_tfm.cli.{VERBS[verb][0]}").main(verb, rest)


def _help() -> str:
    from lightning_tfm.cli.terminal import fit_width
    from lightning_tfm.runs.outcome import meanings

    lines: list[str] = []
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {verb:14} {text}" for verb, (_, text) in commands.items())]
    codes = [f"  {code:<14} {text}" for code, text in sorted(meanings().items())]
    usage = "usage: lightning-tfm COMMAND …; lightning-tfm COMMAND --help for its options"
    return fit_width("\n".join([usage, *lines, "", "exit codes:", *codes]), indent=17)


if __name__ == "__main__":
    sys.exit(main())
