"""`fit`: one run, trained from its last checkpoint on, and scored."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse, printed
from lightning_tfm.config import evaluation_hash, training_hash, training_identity
from lightning_tfm.study.folder import RunFolder
from lightning_tfm.study.rows import user_classes


def main(verb: str, argv: Sequence[str]) -> int:
    settings = parse(make_parser(verb, "Train one experiment, or one row of the table, and score it."), argv)
    if settings.verb["print_config"]:
        print(printed(settings), end="")
        return 0
    exact = settings.exact
    classes = user_classes(settings.experiment)

    from lightning_tfm.data.prepare import prepare

    prepared = prepare(exact.data, settings.out)
    identity = training_identity(settings.experiment, prepared.train_fingerprint, classes)
    name = training_hash(identity)
    folder = RunFolder(settings.out, name)
    if folder.finished():
        print(f"{folder.path} is trained already", file=sys.stderr)
    else:
        code = _train(exact, identity, name, settings, folder)
        if code != 0:
            return code
    _report(folder, evaluation_hash(exact, prepared.fingerprint(exact.data.dev)))
    return 0


def _train(exact, identity, name: str, settings, folder: RunFolder) -> int:
    from lightning_tfm.study.claim import Cell
    from lightning_tfm.study.execute import make_train
    from lightning_tfm.study.processes import exit_on_signals
    from lightning_tfm.study.worker import attempt_run

    row = settings.row.name if settings.row else "experiment"
    cell = Cell(row, exact.training.seed, name, 1.0)
    train = make_train({name: (exact, identity)}, settings.hardware, settings.out)
    print(f"{row}, seed {cell.seed} -> {folder.path}", file=sys.stderr)
    exit_on_signals()
    with _watching(settings.out, cell):
        return attempt_run(train, cell, folder, settings.hardware.threads)


@contextmanager
def _watching(root: Path, cell) -> Iterator[None]:
    """Show the run's progress from a thread of its own until the block ends."""
    from lightning_tfm.study.claim import CellState
    from lightning_tfm.study.progress import View, Watch

    over, view, watch = threading.Event(), View("fit"), Watch(root, 1)
    state = [CellState(cell, "running", "", None, 1, None)]

    def show() -> None:
        while not over.wait(0.5):
            if view.due():
                view.show(watch.look(state))

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        view.close()


def _report(folder: RunFolder, evaluation: str) -> None:
    result = folder.read_result()
    assert result is not None, "the run is finished"
    for name, score in result["scores"].items():
        print(f"{name} ({score['split']}): PPL {score['ppl']:.3f}, BLEU {score['bleu']:.2f} ({score['signature']})")
    print(f"{result['parameters']['total']:,} parameters, {result['seconds']['total']:.0f} s: {folder.path}")
    if result["scores"]["dev"]["evaluation_hash"] != evaluation:
        print(f"these scores are by other evaluation options: lightning-tfm validate {folder.path} --evaluation.…")
