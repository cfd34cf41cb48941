"""The same work for all: batches of our plan as arrays, sizes, weights to decode with."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.config import Experiment, Hardware, from_dict, override, to_dict
from lightning_tfm.data.batch import make_batch, pad
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.yaml_files import read_yaml

REAL_TEXT = "LIGHTNING_TFM_DATA"
"""environment variable: the folder that holds multi30k/; without it the built-in corpus serves"""
SMALL = {
    "model.N": 3, "model.d_model": 256, "model.d_ff": 1024, "model.h": 4, "model.d_k": 64, "model.d_v": 64,
    "data.vocab_size": 8000, "data.max_len": 128, "training.tokens": 2048, "training.warmup": 400,
    "training.lr_factor": 0.7,
}  # fmt: skip
BASE = {"data.vocab_size": 8000, "data.max_len": 128, "training.tokens": 2048}
"""the paper's base; its ids are those of SMALL in a table of 37000 rows"""
TURNS = {"small": 3, "base": 1, "miniature": 20}
"""batches of one turn"""
BASE_VOCABULARY = 37000
TRANSLATED = 64
"""sentences of one batch to translate"""
TRAINED = 1200
"""steps that the weights for decoding are trained for"""


def experiment(name: str) -> Experiment:
    """Configuration `name` at its true sizes: small, base or miniature."""
    if name == "miniature":
        return from_dict(Experiment, read_yaml("experiments/miniature.yaml").values).scaled()
    made = override(Experiment(), SMALL if name == "small" else BASE, f"benchmarks, {name}")
    text = os.environ.get(REAL_TEXT)
    if text:
        files = {"corpus": "files", "folder": f"{text}/multi30k", "dev": "val", "test": "test_2016_flickr"}
    else:
        files = {"corpus": "builtin", "pairs": 20000, "vocab_size": 2000}
    return replace(made, data=replace(made.data, **files))


def lay_out(name: str, root: Path) -> tuple[Path, dict[str, Any]]:
    """Write batches and sizes of a configuration below `root`; returns the folder and the sizes."""
    e = experiment(name)
    prepared = prepare(e.data, root)
    V = BASE_VOCABULARY if name == "base" else prepared.tokenizer.V
    folder = root / "material" / name
    folder.mkdir(parents=True, exist_ok=True)
    plan, split = TranslationData(e, prepared).plan(), prepared.split(e.data.train)
    steps = _spread(plan, TURNS[name])
    tokens, both, flops, cells = 0, 0, 0, 0
    for number, step in enumerate(steps):
        ids = plan.global_batch(step)
        batch = make_batch([split.source(i) for i in ids], [split.target(i) for i in ids], np.arange(len(ids)))
        S, T = batch.source_lengths_B, batch.target_lengths_B
        pairs = AttentionPairs.of(e.model, S, T)
        tokens, both = tokens + int(T.sum()), both + int(S.sum() + T.sum())
        cells += batch.source_BS.numel() + batch.target_in_BT.numel()
        flops += training_flops(e.model, V, int(S.sum()), int(T.sum()), pairs)
        arrays = {"source": batch.source_BS, "target_in": batch.target_in_BT, "target_out": batch.target_out_BT}
        np.savez(folder / f"batch-{number}.npz", **{key: value.numpy() for key, value in arrays.items()})
    source, target = plan.source_lengths, plan.target_lengths
    m = e.model
    sizes = {key: getattr(m, key) for key in ("N", "d_model", "d_ff", "h", "d_k", "P_drop")}
    sizes |= {"V": V, "eps_ls": e.training.eps_ls, "experiment": to_dict(e), "root": str(root.resolve())}
    sizes |= {"steps": [int(x) for x in steps], "target_tokens": tokens, "tokens": both, "flops": flops, "cells": cells}
    sizes |= {"sentences": len(source), "pieces": int(source.sum() + target.sum())}
    (folder / "sizes.json").write_text(json.dumps(sizes, indent=1))
    return folder, sizes


def without_folders(sizes: dict[str, Any]) -> dict[str, Any]:
    """What a record says of the sizes: of folders at most the last name, for the rest is this machine's."""
    data = sizes["experiment"]["data"]
    named = sizes["experiment"] | {"data": data | {"folder": Path(data["folder"]).name}}
    return {key: value for key, value in sizes.items() if key != "root"} | {"experiment": named}


def _spread(plan, count: int) -> list[int]:
    """`count` steps of the first epoch at evenly spread batch lengths, from the middle of each share."""
    shapes = [int(plan.target_lengths[plan.global_batch(step)].max()) for step in range(plan.steps_per_epoch)]
    order = np.argsort(shapes, kind="stable")
    return [int(order[int((i + 0.5) / count * len(order))]) for i in range(count)]


def lay_out_translation(folder: Path, sizes: dict[str, Any], prepared: Prepared) -> list[list[int]]:
    """Write the test text in batches of TRANSLATED sentences, by length; returns each batch's line numbers."""
    split = prepared.split(sizes["experiment"]["data"]["test"])
    order = np.argsort(split.source_lengths, kind="stable")
    batches = [order[i : i + TRANSLATED] for i in range(0, len(order), TRANSLATED)]
    for number, ids in enumerate(batches):
        source, _ = pad([split.source(i) for i in ids])
        np.savez(folder / f"translate-{number}.npz", source=source)
    return [ids.tolist() for ids in batches]


def weights(folder: Path, steps: int = TRAINED) -> Path:
    """Weights to decode with, trained once by ours and kept beside the material."""
    path = folder / "weights.pt"
    if not path.exists():
        print(f"training weights to decode with: {steps} steps, once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "benchmarks.weights", str(folder), str(steps)], check=True)
    return path


def hardware() -> Hardware:
    return Hardware(accelerator="cpu")
