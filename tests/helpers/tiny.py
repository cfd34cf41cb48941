"""A corpus, an experiment and a run that take a second, and the processes to run them in."""

import json
import multiprocessing
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch  # noqa: F401  for the children

from lightning_tfm.config import Experiment, Hardware, override, training_hash, training_identity
from lightning_tfm.runs.process.forking import fork, unblock_signals

WORDS = "ka lo mi nu pe ri so ta ve zu bra dro fli gri klu pla".split()
TINY = {
    "model.N": 2, "model.d_model": 16, "model.d_ff": 23, "model.h": 2, "model.d_k": 6, "model.d_v": 5,
    "data.corpus": "files", "data.vocab_size": 44, "data.max_len": 60,
    "training.tokens": 260, "training.steps": 12, "training.warmup": 8, "evaluation.extra_len": 2,
}  # fmt: skip


def write_corpus(folder: Path, pairs: int = 70, dev: int = 11, test: int = 5, longest: int = 9) -> Path:
    """Parallel files of very uneven lengths; a translation is the source backwards, in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(5)
    for split, count in (("train", pairs), ("val", dev), ("test", test)):
        lines = [draw.choices(WORDS, k=1 + int(longest * draw.random() ** 2)) for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(" ".join(line[::-1]).upper() + "\n" for line in lines))
    return folder


def miniature(folder: Path) -> list[str]:
    """Options that make the miniature's rows run in half a second each, on a text that is written into `folder`."""
    options = "--miniature.width 64 --miniature.depth 6 --training.steps 600 --training.warmup 5 --trainer.threads 1 "
    options += "--evaluation.beam 1 --evaluation.extra_len 4 "  # untrained models do not end their sentences
    options += "--data.corpus files --data.train train --data.dev val --data.test test --data.vocab_size 44"
    return [*options.split(), "--data.folder", str(write_corpus(folder / "text", longest=5))]


def write_lines(folder: Path, documents: int = 14) -> Path:
    """Text files of documents of uneven length, whose lines count words up or down."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(6)
    for split, count in (("train", documents), ("val", 3), ("test", 2), ("far", 12)):
        lines = []
        for _ in range(count):
            first, step = draw.randrange(16), draw.choice((1, -1, 3))
            words = [WORDS[(first + step * k) % 16] for k in range(draw.randrange(20, 60))]
            lines += [*(" ".join(words[i : i + 7]) for i in range(0, len(words), 7)), ""]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return folder


LINES = {"data__corpus": "lines", "data__max_words": 12, "model__stack": "causal"}
"""changes that make TINY a language model"""


def experiment(folder: Path, **changes: Any) -> Experiment:
    """TINY on the corpus in `folder`; sections and fields are joined by two underscores: model__N=3."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return override(Experiment(), TINY | {"data.folder": str(folder)} | dotted, "tests")


def attempt(e: Experiment, root: Path, hardware: Hardware | None = None) -> tuple[int, Path]:
    """Train and score as the command line does: (exit code, the run's directory). Call it in a child (`in_child`)."""
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.runs.folder import RunFolder
    from lightning_tfm.runs.process.attempt import run_attempt
    from lightning_tfm.runs.process.forking import exit_on_signals
    from lightning_tfm.runs.train import train_cell
    from lightning_tfm.study.cell import Cell

    exit_on_signals()
    hardware = replace(hardware or Hardware(), threads=1, accelerator="cpu")
    prepared = prepare(e.data, root)
    identity = training_identity(e, prepared.train_fingerprint, {})
    name = training_hash(identity)
    folder = RunFolder(root, name)
    plan, cell = (e, identity), Cell("tiny", 1, name, 1.0)
    return run_attempt(folder, lambda attempt: train_cell(plan, cell, hardware, attempt, prepared.folder)), folder.path


def train(e: Experiment, root: Path, hardware: Hardware | None = None) -> Path:
    """`attempt` that must finish."""
    code, path = attempt(e, root, hardware)
    assert code == 0, f"exit code {code}"
    return path


def in_child(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)` in a forked child, of which no thread, handler or state stays behind. Raises what it raised."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = fork(lambda: _report(fn, args, theirs))
    theirs.close()
    try:
        good, value = ours.recv()
    except EOFError:
        good, value = False, "the child left no result"
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not good:
        raise AssertionError(f"{value} (exit code {code})")
    return value


def forget_ours(*missing: str) -> None:
    """For a child (`in_child`): nothing of ours has been imported, and what is missing cannot be."""
    for name in [name for name in sys.modules if name.startswith(("lightning_tfm", "benchmarks"))]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(missing))


def _report(fn, args, pipe) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    unblock_signals()
    try:
        pipe.send((True, fn(*args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    return 0


def metrics(run: Path) -> list[dict[str, Any]]:
    """The run's curve, without the clock and the name of the dev text."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "dev")} for line in lines]


def weights(run: Path) -> dict[str, Any]:
    """Parameters of a run's last checkpoint."""
    import torch

    last = sorted((run / "checkpoints").glob("step-*.ckpt"))[-1]
    return torch.load(last, map_location="cpu", weights_only=True)["state_dict"]
