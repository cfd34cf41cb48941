"""A LightningModule of your own: which package of Python's standard library is a line of code from?

    python examples/own_model/train.py             (some minutes; writes scores.csv and items.csv)
    lightning-tfm judge scores.csv --metric test_acc:higher:0.005

Five variants, five seeds each. The data is the source code that every Python brings along; files are split, not lines,
so that no file is in both halves. The file of scores is written by one callback.
"""

import argparse
import csv
import hashlib
import sysconfig
import zlib
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lightning_tfm

CLASSES = ("asyncio", "ctypes", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml")
BUCKETS, LENGTH = 4096, 48
VARIANTS = {
    "base": {},
    "dropout": {"dropout": 0.3},
    "narrow": {"width": 8},
    "words": {"features": "words"},
    "bold rate": {"rate": 0.3},
}


def features(line: str, kind: str) -> list[int]:
    """Hashed pieces of a line: three characters each, or words."""
    pieces = line.split() if kind == "words" else [line[i : i + 3] for i in range(max(len(line) - 2, 1))]
    found = [1 + zlib.crc32(piece.encode()) % (BUCKETS - 1) for piece in pieces[:LENGTH]]
    return found + [0] * (LENGTH - len(found))


def lines(split: str, most: int) -> list[tuple[str, int]]:
    """(line, class); a third of the files is for the test."""
    root, found = Path(sysconfig.get_paths()["stdlib"]), []
    for label, name in enumerate(CLASSES):
        own = []
        for path in sorted((root / name).rglob("*.py")):
            held_out = hashlib.sha256(path.name.encode()).digest()[0] % 3 == 0
            if held_out == (split == "test"):
                text = path.read_text(encoding="utf-8", errors="ignore").splitlines()
                own += [line.strip() for line in text if len(line.strip()) > 20]
        found += [(line, label) for line in own[:most]]
    return found


def dataset(split: str, kind: str, most: int) -> TensorDataset:
    known = lines(split, most)
    x = torch.tensor([features(line, kind) for line, _ in known])
    return TensorDataset(x, torch.tensor([label for _, label in known]))


class Classifier(lightning.LightningModule):
    """The mean of the pieces' embeddings, one hidden layer."""

    def __init__(self, width: int = 32, dropout: float = 0.0, rate: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.EmbeddingBag(BUCKETS, width, padding_idx=0)
        self.body = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, len(CLASSES)))
        self.right: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.embed(x))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def test_step(self, batch: list[torch.Tensor], _: int) -> None:
        right = self(batch[0]).argmax(-1) == batch[1]
        self.right.append(right)
        self.log("test_acc", right.float().mean(), batch_size=len(right))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.hparams["rate"])


def run(variant: str, seed: int, folder: Path, epochs: int, most: int) -> torch.Tensor:
    """Train and test one; which test lines it had right."""
    settings = dict(VARIANTS[variant])
    kind = settings.pop("features", "characters")
    lightning.seed_everything(seed, verbose=False)
    model = Classifier(**settings)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[lightning_tfm.Scores(folder / "scores.csv", row=variant, seed=seed)],
    )
    trainer.fit(model, DataLoader(dataset("train", kind, most), batch_size=256, shuffle=True))
    trainer.test(model, DataLoader(dataset("test", kind, most // 3), batch_size=1024), verbose=False)
    return torch.cat(model.right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lines", type=int, default=3000, help="of each class, at most")
    options = parser.parse_args()
    with (options.folder / "items.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "seed", "item", "value"])
        for variant in VARIANTS:
            for seed in range(1, options.seeds + 1):
                right = run(variant, seed, options.folder, options.epochs, options.lines)
                writer.writerows([variant, seed, item, int(ok)] for item, ok in enumerate(right.tolist()))
                print(f"{variant}, seed {seed}: {right.float().mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
