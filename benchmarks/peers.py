"""Virtual environments of the peers, one each, in a cache folder: PEERS_FOLDER or ~/.cache/lightning_tfm/peers."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contest import ROOT, Entry

TORCH = "torch==2.13.0"
"""installed first, so that no peer brings another one"""


@dataclass(frozen=True)
class Peer:
    """A library to compare with: its contestant, its packages, the games it plays."""

    module: str
    packages: tuple[str, ...]
    games: tuple[str, ...]
    loose: tuple[str, ...] = ()
    """packages installed without their dependencies, where these ask for an old torch"""
    torch: bool = True


PEERS = {
    "hf_marian": Peer("hf_marian", ("transformers==5.23.0",), ("train", "decode", "decode_exact")),
    "x_transformers": Peer("xtransformers", ("x-transformers==2.31.10",), ("train",)),
    "joeynmt": Peer(
        "joey",
        (
            "importlib-metadata",
            "pyyaml",
            "sacrebleu",
            "sentencepiece",
            "subword-nmt",
            "tensorboard",
            "packaging",
            "datasets",
            "matplotlib",
        ),
        ("train", "decode"),
        loose=("joeynmt==2.3.0",),
    ),
    "ctranslate2": Peer("ct2", ("ctranslate2==4.8.5", "numpy"), ("decode",), torch=False),
}


def folder() -> Path:
    return Path(os.environ.get("PEERS_FOLDER") or Path.home() / ".cache" / "lightning_tfm" / "peers")


def python_of(name: str) -> Path:
    return folder() / name / "bin" / "python"


def install(names: list[str]) -> None:
    """Make the environments that are missing, with pip's own configuration."""
    for name in names:
        peer, python = PEERS[name], python_of(name)
        whole = folder() / name / ".installed"
        if whole.exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", str(folder() / name)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        if peer.torch:
            subprocess.run([*pip, TORCH, "numpy"], check=True)
        for package in peer.loose:
            subprocess.run([*pip, "--no-deps", package], check=True)
        subprocess.run([*pip, *peer.packages], check=True)
        whole.touch()
        print(f"installed {name} in {folder() / name}", file=sys.stderr)


def entries(game: str) -> list[Entry]:
    """The installed peers that play `game`."""
    return [
        Entry(name, peer.module, game, python_of(name))
        for name, peer in PEERS.items()
        if game in peer.games and (folder() / name / ".installed").exists()
    ]
