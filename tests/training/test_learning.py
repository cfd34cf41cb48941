"""Learning proved: a tiny model learns to write a sequence backwards, by the whole road from loss to beam search."""

import lightning.pytorch as pl
import numpy as np

from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.module import StepLoader
from lightning_tfm.data.plan import Plan
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training.evaluate import evaluate_lines, perplexity
from lightning_tfm.training.module import TransformerModule

V, HELD_OUT = 12, 60


class Backwards:
    """Random sequences of 1 to 6 of 8 pieces, and the same backwards."""

    def __init__(self, n: int):
        random = np.random.default_rng(0)
        self.rows = [random.integers(4, V, random.integers(1, 7)) for _ in range(n)]
        self.lengths = np.array([len(row) + 1 for row in self.rows])

    def source(self, i: int) -> np.ndarray:
        return self.rows[i]

    def target(self, i: int) -> np.ndarray:
        return self.rows[i][::-1]


def test_it_learns_to_write_backwards():
    pl.seed_everything(0, verbose=False)
    e = Experiment(
        model=Model(N=1, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, P_drop=0.02),
        training=Training(tokens=400, steps=700, warmup=150, eps_ls=0.05),
    )
    text = Backwards(3000)
    seen = {tuple(row) for row in text.rows[HELD_OUT:]}
    fresh = [i for i in range(HELD_OUT) if tuple(text.rows[i]) not in seen]
    assert len(fresh) > 20
    module = TransformerModule(e, V)
    plan = Plan(text.lengths, text.lengths, e.training.tokens, 1, ids=np.arange(HELD_OUT, len(text.rows)))
    trainer = make_trainer(e, Hardware(accelerator="cpu"), [])
    trainer.fit(module, train_dataloaders=StepLoader(plan, text, 0, 0, 1, 0))

    batch = make_batch([text.source(i) for i in fresh], [text.target(i) for i in fresh], np.arange(len(fresh)))
    lines = evaluate_lines(module, [batch], len(fresh), e.evaluation)
    right = [line.pieces == text.target(i).tolist() for i, line in zip(fresh, lines, strict=True)]
    ppl = perplexity(lines).ppl
    print(f"perplexity {ppl:.2f}, {np.mean(right):.0%} of the sequences right")
    assert ppl < 1.5  # 1.07 to 1.18 at five seeds; without the source 7 at best
    assert np.mean(right) > 0.7  # 88 to 100 %
