"""Preparation at WMT's size: generated pairs with the lengths and word statistics of news, from raw files to store.

    python -m benchmarks.wmt_size 500000 1500000 4500000 [--folder FOLDER] > RESULT

Each size runs in a process of its own, whose peak memory is reported. The text is Zipf-Mandelbrot over millions of
types, spelled from syllables, frequent words shorter; one pair in fifty repeats an earlier one, one in a thousand
breaks a rule, one line is not UTF-8.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TYPES = 8_000_000
EXPONENT, SHIFT = 1.25, 20.0
"""chosen so that 283,431 words hold as many types as the German of the WMT test sets 2008 to 2012: 56,539"""
CHUNK = 100_000
SIDES = {"en": 1, "de": 2}


def syllables(language: str) -> list[str]:
    consonants, vowels = "b d f g k l m n p r s t v z sch st tr".split(), "a e i o u au ei ä ö ü".split()
    rng = np.random.default_rng(SIDES[language])
    found = [c + v + end for c in consonants for v in vowels for end in ("", "n", "r")]
    return list(rng.permutation(found))


def spell(numbers: np.ndarray, parts: list[str]) -> list[str]:
    """Words by rank: written in base len(parts), so that frequent words are short; every tenth carries a full stop."""
    base, words = len(parts), []
    for n in numbers.tolist():
        word, rest = "", n
        while True:
            rest, digit = divmod(rest, base)
            word += parts[digit]
            if not rest:
                break
        words.append(word + "." if n % 10 == 9 else word.capitalize() if n % 4 == 3 else word)
    return words


def generate(folder: Path, pairs: int) -> None:
    """train of `pairs` lines, val and test of 3,000."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = (np.arange(TYPES) + 1 + SHIFT) ** -EXPONENT
    ends = np.cumsum(weights) / weights.sum()
    for language, seed in SIDES.items():
        lexicon = np.array(spell(np.arange(TYPES), syllables(language)), dtype=object)
        rng, lengths_rng = np.random.default_rng(seed), np.random.default_rng(9)
        for split, count in (("train", pairs), ("val", 3000), ("test", 3000)):
            with (folder / f"{split}.{language}").open("wb") as file:
                for start in range(0, count, CHUNK):
                    n = min(CHUNK, count - start)
                    lengths = np.clip(lengths_rng.lognormal(3.05, 0.6, n), 1, 200).astype(int)
                    words = lexicon[np.searchsorted(ends, rng.random(int(lengths.sum())))].tolist()
                    at, lines = 0, []
                    for length in lengths.tolist():
                        lines.append(" ".join(words[at : at + length]))
                        at += length
                    if split == "train":
                        for i in range(50, n, 50):
                            lines[i] = lines[i - 50]
                        for i in range(7, n, 1000):
                            lines[i] = "x " * 300 if language == "de" else lines[i]
                    content = "".join(f"{line}\n" for line in lines).encode()
                    file.write(content)
                    if split == "train" and start == 0 and language == "de":
                        file.seek(0)
                        file.write(b"\xff")
                        file.seek(0, os.SEEK_END)


def measure(folder: Path, root: Path) -> None:
    """Prepare, open, plan; prints one figure a line."""
    from lightning_tfm.config import Data
    from lightning_tfm.data.prepare import prepare

    stamps = []
    cleaned = {
        "max_words": 250,
        "max_ratio": 3.0,
        "check_encoding": True,
        "drop_duplicates": True,
    }
    data = Data(corpus="files", folder=str(folder), bad_lines="drop", vocab_size=37000, **cleaned)
    began = time.perf_counter()

    def say(line: str) -> None:
        stamps.append((time.perf_counter() - began, line))
        print(f"  {time.perf_counter() - began:7.1f} s  {peak():5.0f} MiB  {line}", flush=True)

    prepared = prepare(data, root, say)
    card = prepared.card
    print(f"prepared: {time.perf_counter() - began:.1f} s, peak {peak():.0f} MiB")
    print(f"  {card['splits']['train']['pairs']}, first dropped: {card['splits']['train']['dropped_first']}")
    print(f"  tokenizer {card['tokenizer']}")
    print(f"  pieces {card['splits']['train']['pieces']}")


def open_and_plan(root: Path) -> None:
    """A fresh process: open the store, plan an epoch, make the first batch of a resumed run, then measure the input."""
    from lightning_tfm.config import Experiment, Training
    from lightning_tfm.data.dataset import Prepared
    from lightning_tfm.data.module import StepLoader, TranslationData

    before, began = peak(), time.perf_counter()
    (store,) = (root / "data").iterdir()
    prepared = Prepared(store)
    data = TranslationData(Experiment(training=Training(tokens=25000)), prepared)
    split = prepared.split("train")
    plan = data.plan()
    step = plan.steps_per_epoch + 5  # the second epoch: as a resumed run begins
    plan.global_batch(step)
    seconds = time.perf_counter() - began
    print(f"open and plan: {seconds:.2f} s, {peak() - before:.0f} MiB over {before:.0f} MiB of imports")
    loader = StepLoader(plan, split, step, 0, 1, 0)
    loader.step(step)
    print(f"first batch of a resumed run: {time.perf_counter() - began:.2f} s")
    began, tokens, steps = time.perf_counter(), 0, 60
    for i in range(step + 1, step + 1 + steps):
        tokens += loader.step(i).target_tokens
    seconds = time.perf_counter() - began
    rate, each = tokens / seconds / 1e6, seconds / steps * 1e3
    print(f"input pipeline: {rate:.2f} M target tokens/s of ready batches, {each:.1f} ms a step")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=int, nargs="*", default=[500_000])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "wmt_size")
    parser.add_argument("--stage", choices=["generate", "measure", "open"])
    options = parser.parse_args()
    if options.stage:
        text, root = options.folder / "text", options.folder / "root"
        {"generate": lambda: generate(text, options.pairs[0]), "measure": lambda: measure(text, root)}.get(
            options.stage, lambda: open_and_plan(root)
        )()
        return
    cores, load, now = len(os.sched_getaffinity(0)), os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M")
    print(f"{platform.processor() or platform.machine()}, {cores} cores, load {load:.1f}, {now}")
    for pairs in options.pairs:
        folder = options.folder / str(pairs)
        print(f"\n{pairs} pairs")
        for stage in ("generate", "measure", "open"):
            argv = [sys.executable, "-m", "benchmarks.wmt_size", str(pairs), "--folder", str(folder), "--stage", stage]
            subprocess.run(argv, check=True)


if __name__ == "__main__":
    main()
