"""What is measured. Every game takes the options of the command line and writes one result."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, material, peers, report
from benchmarks.contest import ROOT, Entry, Player, play, rows
from lightning_tfm.data.prepare import prepare


def _chosen(entries: list[Entry], options: Namespace) -> list[Entry]:
    names = set(options.only.split(",")) if options.only else {entry.name for entry in entries}
    return [entry for entry in entries if entry.name in names]


def train(options: Namespace) -> None:
    for name in ("small", "base", "miniature") if options.config == "all" else [options.config]:
        folder, sizes = material.lay_out(name, options.root)
        entries = [Entry("ours", "ours", "train"), Entry("ours, products by oneDNN", "ours", "train_onednn")]
        entries += [Entry("torch_nn", "torch_nn", "train"), *peers.entries("train")]
        if name == "miniature":  # as each is used: a study's workers side by side, a loop with torch's own threads
            entries.append(Entry("ours, a worker for each core", "ours", "train", copies=options.threads))
            entries.append(Entry("torch_nn, a thread for each core", "torch_nn", "train", threads=options.threads))
        entries = _chosen([*entries, Entry("yardstick", "yardstick", "train")], options)
        turn = list(range(len(sizes["steps"])))
        # a miniature is run with one thread to a process, several side by side
        threads = 1 if name == "miniature" else options.threads
        players = play(entries, folder, turn, options.rounds, threads, options.patience)
        _write_train(name, sizes, players, options, threads)


def _without_yardstick(players: list[Player], turn: list[int]) -> tuple[list[Player], float | None, list[str]]:
    """The contestants; FLOP/s of the yardstick, None where it did not take part; what is noted of it."""
    stick = next((player for player in players if player.entry.name == "yardstick"), None)
    if stick is None:
        return players, None, []
    peak = stick.facts["flops"] * len(turn) / stick.median()
    note = f"yardstick: {peak / 1e9:.0f} GFLOP/s (products of 2048 x 2048 matrices, median of the same rounds)"
    return [player for player in players if player is not stick], peak, [note]


def _write_train(name: str, sizes: dict[str, Any], players: list[Player], options: Namespace, threads: int) -> None:
    players, peak, noted = _without_yardstick(players, sizes["steps"])
    table = rows(players, sizes["target_tokens"], "torch_nn")
    notes = [
        f"{len(sizes['steps'])} batches a turn, {sizes['target_tokens']} target tokens; "
        f"padding {1 - sizes['tokens'] / sizes['cells']:.1%} of the cells; dropout {sizes['P_drop']}, float32",
        *noted,
    ]
    if peak is not None:
        for row in table:
            row["utilisation"] = sizes["flops"] / sizes["target_tokens"] * row["median"] / peak
        shares = ", ".join(f"{row['name']} {row['utilisation']:.0%}" for row in table)
        notes.append(f"share of the yardstick: {shares}")
    record = {
        "machine": machine.facts(threads),
        "sizes": material.without_folders(sizes),
        "rows": table,
        "notes": notes,
    }
    title = f"Training, {name}"
    report.write(
        f"train-{name}", report.markdown(title, "target tokens/s", "torch_nn", table, notes), record, options.out
    )


def decode(options: Namespace) -> None:
    """Beam 4, power length penalty 0.6, the same weights; `_exact`: stops only when nothing better can come;
    `_packed`: products by oneDNN."""
    folder, sizes = material.lay_out("small", options.root)
    prepared = prepare(material.experiment("small").data, options.root)
    material.weights(folder, options.steps)
    lines = material.lay_out_translation(folder, sizes, prepared)
    entries = []
    for game in ("decode", "decode_exact"):
        suffix = game.removeprefix("decode")
        entries.append(Entry(f"ours{suffix}", "ours", game))
        entries += [Entry(f"{e.name}{suffix}", e.module, e.game, e.python) for e in peers.entries(game)]
    entries.append(Entry("ours_packed", "ours", "decode_packed"))
    entries = _chosen([*entries, Entry("yardstick", "yardstick", "decode")], options)
    turn = [int((i + 0.5) / 4 * len(lines)) for i in range(4)]  # of every length
    scored = [entry for entry in entries if entry.name != "yardstick"]
    whole = play(scored, folder, list(range(len(lines))), 1, options.threads, 1, warm=turn[:1])
    players = play(entries, folder, turn, options.rounds, options.threads, options.patience)
    players, _, noted = _without_yardstick(players, turn)
    table = rows(players, sum(len(lines[i]) for i in turn), "hf_marian")
    notes = [f"{len(turn)} of {len(lines)} batches of {material.TRANSLATED} sentences a turn, beam 4, pieces / n^0.6"]
    notes += noted
    notes += [_quality(player, lines, prepared, sizes) for player in whole]
    record = {"machine": machine.facts(options.threads), "rows": table, "notes": notes}
    text = report.markdown("Decoding, small", "sentences/s", "hf_marian", table, notes)
    report.write("decode", text, record, options.out)


def _quality(player: Player, lines: list[list[int]], prepared, sizes: dict[str, Any]) -> str:
    from lightning_tfm.bleu import bleu

    split = prepared.split(sizes["experiment"]["data"]["test"])
    texts = [""] * len(split)
    pieces = 0
    for ids, answers in zip(lines, player.answers, strict=True):
        for i, row in zip(ids, answers, strict=True):
            texts[i], pieces = prepared.tokenizer.decode(row), pieces + len(row)
    score = bleu(texts, split.target_text())
    speed = len(split) / player.median()
    return f"{player.entry.name}: BLEU {score.value:.2f}, {pieces} pieces, all {len(split)} sentences at {speed:.1f}/s"


def startup(options: Namespace) -> None:
    """Wall time of whole commands, interleaved."""
    with tempfile.TemporaryDirectory() as empty:
        code = "from lightning_tfm.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
        ours = [sys.executable, "-c", code]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "lightning-tfm --help": [*ours, "--help"],
            "lightning-tfm fit --help": [*ours, "fit", "--help"],
            "lightning-tfm table --params": [*ours, "table", "--params"],
            "lightning-tfm runs list": [*ours, "runs", "list", "--out", empty],
            "a key that does not exist": [*ours, "fit", "--model.hh", "3"],
            "import torch": [sys.executable, "-c", "import torch"],
            "import lightning": [sys.executable, "-c", "import lightning.pytorch"],
        }
        seconds = _time_commands(commands, options.rounds)
    body = [[name, f"{statistics.median(x):.2f}", f"{min(x):.2f}–{max(x):.2f}"] for name, x in seconds.items()]
    text = "\n".join(["## Start-up", "", *report._table(["command", "seconds", "min–max"], body), ""])
    record = {"machine": machine.facts(options.threads), "seconds": seconds}
    report.write("startup", text, record, options.out)


def _time_commands(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if turn:  # the first fills the page cache
                seconds[name].append(round(time.perf_counter() - began, 4))
    return seconds


def input(options: Namespace) -> None:
    """Text to store, as `fit` does it for the first time."""
    e = material.experiment("small")
    seconds, card = [], {}
    for _ in range(max(3, options.rounds // 2)):
        root = Path(tempfile.mkdtemp(prefix="input-"))
        began = time.perf_counter()
        prepared = prepare(e.data, root)
        seconds.append(time.perf_counter() - began)
        card = prepared.card
        shutil.rmtree(root)
    sentences = 2 * sum(split["pairs"]["kept"] for split in card["splits"].values())
    rate = sentences / statistics.median(seconds)
    encode = _encode_rate(e, options)
    body = [["tokenizer trained, encoded, stored", f"{rate:.0f}"], ["encoded and stored", f"{encode:.0f}"]]
    text = "\n".join(["## Input", "", *report._table(["", "sentences/s"], body), ""])
    record = {"machine": machine.facts(options.threads), "seconds": seconds, "rate": rate, "encode": encode}
    report.write("input", text, record, options.out)


def _encode_rate(e, options: Namespace) -> float:
    from lightning_tfm.data.sources.files import make_corpus
    from lightning_tfm.data.text.build_store import BATCH
    from lightning_tfm.data.text.word_encoder import WordEncoder
    from lightning_tfm.data.token_store import SIDES, SplitWriter

    prepared = prepare(e.data, options.root)
    pairs = list(make_corpus(e.data).lines(e.data.train))
    threads, rates = len(os.sched_getaffinity(0)), []
    for _ in range(max(3, options.rounds // 2)):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            encoder = WordEncoder(prepared.tokenizer, threads, e.data.normalization)
            writer = SplitWriter(Path(folder), "train", prepared.tokenizer.V, keep_text=False)
            for start in range(0, len(pairs), BATCH):
                for side, lines in enumerate(zip(*pairs[start : start + BATCH], strict=True)):
                    writer.write(SIDES[side], lines, *encoder.encode(lines))
            writer.close()
            rates.append(2 * len(pairs) / (time.perf_counter() - began))
    return float(np.median(rates))


def ranks(options: Namespace) -> None:
    """The small configuration: two gloo processes of one thread, one process of two, the same steps, in turn."""
    folder, _ = material.lay_out("small", options.root)
    seconds: dict[str, list[float]] = {"1 process x 2 threads": [], "2 processes x 1 thread": []}
    for _ in range(max(3, options.rounds // 2)):
        for name, devices in zip(seconds, (1, 2), strict=True):
            command = [sys.executable, "-m", "benchmarks.two_ranks", str(folder), str(devices), str(2 // devices)]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            seconds[name].append(float(done.stdout.split()[-1]))
    first, second = (statistics.median(x) for x in seconds.values())
    body = [
        [name, f"{statistics.median(x) * 1000:.0f}", f"{first / statistics.median(x):.2f}"]
        for name, x in seconds.items()
    ]
    text = "\n".join(["## Ranks", "", *report._table(["", "ms a step", "ratio"], body), ""])
    report.write("ranks", text, {"machine": machine.facts(2), "seconds": seconds, "ratio": first / second}, options.out)
