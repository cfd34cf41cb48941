"""Text, models and clocks of the stages: random pieces with the lengths of news, no corpus, no tokenizer."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch

from lightning_tfm.accel import kernels, select
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import Step
from lightning_tfm.data.batch_plan import Plan
from lightning_tfm.data.module import StepLoader
from lightning_tfm.data.prefetcher import Prefetcher
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.rng import generator
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.training.module import TransformerModule

NEWS = (3.25, 0.6)
"""log-normal lengths in pieces, mean 31, as of the WMT training text"""
WARM, PATIENCE = 20, 40.0
"""steps in a row that compile nothing before the clock starts; seconds after which it starts anyway, and says so"""
PROFILED = 5
"""steps after the clock stopped whose kernels' seconds on the device are summed"""


@dataclass(frozen=True)
class Place:
    """Where and how large."""

    out: Path
    tiny: bool
    name: str

    @property
    def gpu(self) -> bool:
        return torch.cuda.is_available()

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.gpu else "cpu")

    @property
    def seconds(self) -> float:
        """Of one timing."""
        return 0.3 if self.tiny else 8.0

    def say(self, what: str, **values: Any) -> None:
        """One line of the stage's result, on the disk at once."""
        line = json.dumps({"what": what, **values})
        with (self.out / f"{self.name}.jsonl").open("a") as file:
            file.write(line + "\n")
        print(line)

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def base(self, **training: Any) -> Experiment:
        """The paper's base; a model of a few thousand numbers in the rehearsal."""
        model = Model(N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16) if self.tiny else Model()
        tokens = 400 if self.tiny else 25_000
        return Experiment(model=model, training=replace(Training(tokens=tokens, steps=1 << 20), **training))

    @property
    def V(self) -> int:
        return 500 if self.tiny else 37_000

    def hardware(self, **more: Any) -> Hardware:
        return Hardware(accelerator="gpu" if self.gpu else "cpu", **more)

    def clock(self, work: Callable[[], object], seconds: float | None = None) -> float:
        """Median seconds of `work`, after two calls that are not counted."""
        seconds_taken: list[float] = []
        end = time.perf_counter() + (self.seconds / 4 if seconds is None else seconds)
        while len(seconds_taken) < 5 or time.perf_counter() < end:
            self.wait()
            began = time.perf_counter()
            work()
            self.wait()
            seconds_taken.append(time.perf_counter() - began)
        return statistics.median(seconds_taken[2:])


class News:
    """Sentences that are slices of one array of random pieces: a text that costs a step nothing."""

    def __init__(self, sentences: int, V: int, longest: int = 256):
        draw, self.pieces = generator("gpu", "lengths"), generator("gpu", "pieces").integers(4, V, 1 << 20)
        source = np.clip(draw.lognormal(*NEWS, sentences), 2, longest).astype(np.int64)
        target = np.clip(source * draw.lognormal(0, 0.2, sentences), 2, longest).astype(np.int64)
        self.lengths = source, target

    def _slice(self, side: int, i: int) -> np.ndarray:
        start = (i * 7919 + side * 104_729) % (len(self.pieces) - 256)
        return self.pieces[start : start + int(self.lengths[side][i]) - 1]

    def source(self, i: int) -> np.ndarray:
        return self._slice(0, i)

    def target(self, i: int) -> np.ndarray:
        return self._slice(1, i)


@dataclass(frozen=True)
class Work:
    """An experiment over such a text."""

    place: Place
    experiment: Experiment
    V: int

    @cached_property
    def text(self) -> News:
        return News(200 if self.place.tiny else 1_000_000, self.V, 40 if self.place.tiny else 256)

    @cached_property
    def plan(self) -> Plan:
        t = self.experiment.training
        return Plan(*self.text.lengths, t.tokens, t.seed)

    def loader(self, first: int = 0, micro_tokens: int = 0) -> StepLoader:
        return StepLoader(self.plan, self.text, first, 0, 1, micro_tokens)  # type: ignore[arg-type]

    def module(self, hardware: Hardware | None = None, device: torch.device | None = None) -> TransformerModule:
        """Of this text and experiment; its steps are computed as `hardware` asks [as training does by default]."""
        kind, device = self.experiment.training.precision, device or self.place.device
        return TransformerModule(
            self.experiment, self.V, select.backend(hardware or self.place.hardware(), kind, device)
        )


class Compiled:
    """How many kernels this process has compiled or loaded, by Triton and by torch's compiler."""

    def __init__(self) -> None:
        self.by_triton = 0
        if kernels.has_triton():
            from triton import knobs

            knobs.runtime.jit_post_compile_hook = self._count

    def _count(self, *_: Any, **__: Any) -> None:
        self.by_triton += 1

    def __call__(self) -> int:
        dynamo = sys.modules.get("torch._dynamo.utils")
        return self.by_triton + (dynamo.counters["frames"]["total"] if dynamo else 0)


class Pace(pl.Callback):
    """Waits until nothing is compiled any more, counts the steps of `seconds`, sums what the device did in a few more,
    and stops the training."""

    def __init__(self, place: Place, seconds: float):
        self.place, self.limit, self.compiled = place, seconds, Compiled()
        self.steps = self.tokens = self.source = 0
        self.seconds = 0.0
        self.warm = True
        self.device_seconds = 0.0
        """of the kernels of a step; 0 on a CPU"""
        self._began: float | None = None
        self._first = time.perf_counter()
        self._quiet, self._seen, self._profiled = 0, 0, 0
        self._profiler: torch.profiler.profile | None = None

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Step, batch_idx: int) -> None:
        if self._began is None:
            self._warm_up()
        elif not self.seconds:
            self._count(trainer, batch)
        else:
            self._profile(trainer)

    def _warm_up(self) -> None:
        seen = self.compiled()
        self._quiet, self._seen = (self._quiet + 1, seen) if seen == self._seen else (0, seen)
        late = time.perf_counter() - self._first > PATIENCE
        if self._quiet >= WARM or late:
            self.warm = not late
            self.place.wait()
            self._began = time.perf_counter()

    def _count(self, trainer: Any, batch: Step) -> None:
        assert self._began is not None
        self.steps, self.tokens = self.steps + 1, self.tokens + batch.target_tokens
        self.source += batch.source_tokens
        if time.perf_counter() - self._began > self.limit:
            self.place.wait()
            self.seconds = time.perf_counter() - self._began
            trainer.should_stop = not self.place.gpu
            if self.place.gpu:
                self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self._profiler.start()

    def _profile(self, trainer: Any) -> None:
        self._profiled += 1
        if self._profiled == PROFILED:
            assert self._profiler is not None
            self.place.wait()
            self._profiler.stop()
            microseconds = sum(event.self_device_time_total for event in self._profiler.key_averages())
            self.device_seconds = microseconds / 1e6 / PROFILED
            trainer.should_stop = True


def pace(
    work: Work, hardware: Hardware, ahead: bool = True, prepare: Callable[[TransformerModule], None] | None = None
) -> dict[str, Any]:
    """Train through our Trainer for a while: what it gave, as fields of a line."""
    from lightning_tfm.training.backend import backends_used, compile_layers

    place = work.place
    prepare_process(hardware)
    module, watch = work.module(hardware), Pace(place, place.seconds)
    trainer = make_trainer(work.experiment, hardware, [watch])
    if hardware.compile:
        compile_layers(module.transformer)
    if prepare is not None:
        prepare(module)
    loader: Any = work.loader()
    if place.gpu:
        torch.cuda.reset_peak_memory_stats()
    trainer.fit(module, train_dataloaders=Prefetcher(loader, place.gpu) if ahead else loader)
    module.flush_losses()
    T, S = watch.tokens, watch.source
    mean = [float(x.mean()) for x in work.text.lengths]
    pairs = AttentionPairs(round(S * mean[0]), round(T * mean[1]), round(T * mean[0]))
    flops = training_flops(work.experiment.model, work.V, S, T, pairs)
    wall = watch.seconds / watch.steps
    record = {
        "target_tokens_per_second": round(T / watch.seconds),
        "ms_step": round(1e3 * wall, 3),
        "steps": watch.steps,
        "tflops": round(flops / watch.seconds / 1e12, 3),
        "kernels_made": watch.compiled(),
        "warm": watch.warm,
        "ran": backends_used(module),
    }
    if place.gpu:
        record["device_ms_step"] = round(1e3 * watch.device_seconds, 3)
        record["device_busy"] = round(watch.device_seconds / wall, 3)
        record["peak_GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return record
