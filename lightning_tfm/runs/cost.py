"""What an experiment will cost: FLOPs by formula, time and memory from a measured short run of its steps."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from lightning_tfm.accel import choose
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.plan import Plan
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.keys import generator
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.plurals import plural
from lightning_tfm.training.memory import peak_bytes
from lightning_tfm.training.module import TransformerModule

NEWS = (3.25, 0.6)
"""log-normal lengths in pieces where no text is prepared: mean 31, as in the WMT training text"""
SYNTHETIC = 200_000
"""sentences of such a text"""
REPEATS = 3
"""measured micro-batches, after an unmeasured one"""
MOST_FLOPS = 2e11
"""of a pass on a CPU if no micro-batch size is given: a few seconds"""


@dataclass(frozen=True)
class Measured:
    """One device, one experiment."""

    device: str
    text: str
    """where the sentence lengths come from"""
    V: int
    parameters: int
    micro_tokens: int
    """padded tokens of a micro-batch at most; 0: the whole step at once"""
    seconds_micro: float
    """forward and backward pass of one micro-batch"""
    target_tokens_micro: float
    seconds_optimizer: float
    target_tokens: float
    """of a mean step"""
    flops: float
    """of a mean step, by formula"""
    state_bytes: int
    """weights, gradients and Adam's two moments"""
    peak_bytes: int
    """largest memory seen, the state included"""

    @property
    def rate(self) -> float:
        """FLOP/s of the passes here."""
        return self.flops / self.target_tokens * self.target_tokens_micro / self.seconds_micro


@dataclass(frozen=True)
class Cost:
    """A whole training on `devices` devices."""

    devices: int
    seconds_step: float
    target_tokens_per_second: float
    seconds: float
    flops: float


def measure(exact: Experiment, hardware: Hardware, root: Path, say: Callable[[str], None]) -> Measured:
    """Run a few micro-batches of `exact` here, and `say` first what is run. Raises UserError where its text is broken.

    Without trainer.micro_tokens it is the whole step at once; on a CPU no more than takes some seconds.
    """
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    gpu = hardware.accelerator != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda:0" if gpu else "cpu")
    plan, V, text = _plan(exact, root)
    steps = generator("cost", exact.training.seed).choice(plan.steps_per_epoch, min(40, plan.steps_per_epoch), False)
    backend = choose.backend(hardware, exact.training.precision, device)
    module = TransformerModule(exact, V, backend).to(device)
    optimizer = module.configure_optimizers()
    flops = float(np.mean([_step_flops(module.transformer, plan, step) for step in steps.tolist()]))
    micro_tokens = hardware.micro_tokens
    if not (gpu or micro_tokens) and flops > MOST_FLOPS:
        micro_tokens = max(exact.data.max_len, int(exact.training.tokens * MOST_FLOPS / flops))
    how = f"of at most {micro_tokens:,} padded tokens" if micro_tokens else "of a whole step each"
    say(f"measuring {1 + REPEATS} micro-batches {how} on this {device.type.upper()} …")
    passes, tokens, updates = [], [], []
    before = peak_bytes()
    for number, step in enumerate(steps[: 1 + REPEATS].tolist()):
        batch = _micro_batch(plan, step, V, micro_tokens)
        seconds = _timed(partial(_pass, module, step, batch, device), device)
        update = _timed(optimizer.step, device)
        if number or len(steps) == 1:
            passes.append(seconds)
            tokens.append(batch.target_tokens)
            updates.append(update)
        optimizer.zero_grad()
    sums = np.array([plan.step_tokens(step) for step in steps.tolist()], dtype=float).mean(0)
    parameters = sum(p.numel() for p in module.parameters())
    by = "" if hardware.products == "torch" else f", products by {hardware.products}"
    state = sum(4 * p.numel() * p.element_size() for p in module.parameters())
    peak = torch.cuda.max_memory_allocated() if gpu else peak_bytes() - before + state // 4
    return Measured(
        device=f"{torch.cuda.get_device_name()}" if gpu else f"CPU, {plural(torch.get_num_threads(), 'thread')}{by}",
        text=text,
        V=V,
        parameters=parameters,
        micro_tokens=micro_tokens,
        seconds_micro=median(passes),
        target_tokens_micro=float(np.median(tokens)),
        seconds_optimizer=median(updates),
        target_tokens=float(sums[1]),
        flops=flops,
        state_bytes=state,
        peak_bytes=max(peak, state),
    )


def predict(exact: Experiment, found: Measured, devices: int, rate: float = 0.0, bandwidth: float = 50e9) -> Cost:
    """The whole training on `devices` devices like the measured one, or with `rate` FLOP/s each.

    Gradients travel once in each direction at `bandwidth` bytes/s, not hidden behind the backward pass. Validation,
    decoding and checkpoints are left out.
    """
    passes = found.flops / (rate or found.rate) / devices
    optimizer = found.seconds_optimizer * (found.rate / rate if rate else 1.0)
    exchange = 2 * (devices - 1) / devices * found.state_bytes / 4 / bandwidth
    step = passes + optimizer + exchange
    steps = exact.training.steps
    return Cost(devices, step, found.target_tokens / step, steps * step, steps * found.flops)


def _plan(exact: Experiment, root: Path) -> tuple[Plan, int, str]:
    """The experiment's plan over its text where that is prepared or can be, else over lengths like those of news."""
    try:
        prepared = prepare(exact.data, root)
    except UserError as error:
        draw = generator("cost", "lengths")
        lengths = np.clip(draw.lognormal(*NEWS, (2, SYNTHETIC)), 2, exact.data.max_len).astype(np.int64)
        lengths[1] = np.clip(lengths[0] * draw.lognormal(0, 0.2, SYNTHETIC), 2, exact.data.max_len).astype(np.int64)
        plan = Plan(lengths[0], lengths[1], exact.training.tokens, exact.training.seed)
        return plan, exact.data.vocab_size, f"lengths like those of news: {str(error).splitlines()[0]}"
    return TranslationData(exact, prepared).plan(), prepared.tokenizer.V, f"lengths of {prepared.folder}"


def _micro_batch(plan: Plan, step: int, V: int, micro_tokens: int) -> Batch:
    """The middle micro-batch of a step, with random pieces."""
    parts = plan.micro_batches(step, 0, 1, micro_tokens)
    positions = parts[len(parts) // 2]
    ids, draw = plan.global_batch(step)[positions], generator("cost", step)
    source, target = (
        [draw.integers(4, V, n - 1).astype(np.int32) for n in lengths[ids]]
        for lengths in (plan.source_lengths, plan.target_lengths)
    )
    return make_batch(source, target, positions)


def _pass(module: TransformerModule, step: int, batch: Batch, device: torch.device) -> None:
    autocast = module.experiment.training.precision == "bfloat16"
    moved = batch.to(device)
    with torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext():
        loss, _ = module.batch_loss(moved, module._noise(step, moved))
    (loss / batch.target_tokens).backward()


def _timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _step_flops(model: Transformer, plan: Plan, step: int) -> int:
    ids = plan.global_batch(step)
    source, target = plan.source_lengths[ids], plan.target_lengths[ids]
    pairs = AttentionPairs.of(model.config, source, target)
    return training_flops(model.config, model.V, int(source.sum()), int(target.sum()), pairs, model.weights())
