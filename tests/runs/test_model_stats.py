"""What a record counts of a run's training."""

from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.runs.model_stats import run_flops
from tests.helpers.tiny import experiment, write_corpus


@pytest.mark.parametrize("max_len", [8, 200])
def test_flops_are_those_of_the_pairs_that_are_trained_on(tmp_path: Path, max_len: int) -> None:
    """Over a whole epoch the mean is exact; longer pairs would count with the square of their length."""
    e = experiment(write_corpus(tmp_path / "text"), data__max_len=max_len)
    data = TranslationData(e, prepare(e.data, tmp_path))
    plan = data.plan()
    ids = np.concatenate([plan.global_batch(step) for step in range(plan.steps_per_epoch)])
    assert (len(ids) < len(plan.source_lengths)) == (max_len == 8)
    source, target = plan.source_lengths[ids].astype(int), plan.target_lengths[ids].astype(int)
    model = Transformer(data.experiment.model, data.prepared.tokenizer.V)
    tokens = int(source.sum()), int(target.sum())
    pairs = AttentionPairs(source @ source, target @ target, source @ target)
    exact = training_flops(model.config, model.V, *tokens, pairs, model.weights())
    assert run_flops(model, data, *tokens) == exact
