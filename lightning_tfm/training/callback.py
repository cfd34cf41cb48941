"""The one callback that decides when a run logs, validates, writes a checkpoint, and stops. Steps count from 1 here.

Validation runs in our own loop: Lightning counts the batches of the current process, so that a resumed run would
validate at other steps.
"""

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from lightning_tfm.data.batch import Batch, Step
from lightning_tfm.training.backend import backends_used, variants_tried
from lightning_tfm.training.counters import RunCounters
from lightning_tfm.training.evaluate import evaluate_lines, perplexity
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule, learning_rate
from lightning_tfm.training.weight_files import CheckpointWriter

ASKED = 1
"""what ranks agree on when the run was asked to stop; below every signal, which would leave a checkpoint"""
PROGRESS_SECONDS = 1.0
REQUEST_SECONDS = 0.2
WARM_UP = 60.0
"""seconds of training in one attempt after which nothing more should be compiled"""


class Interrupted(Exception):
    """SIGTERM or SIGINT arrived; a checkpoint of the last whole step was written."""

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name} after a checkpoint")
        self.signum = signum
        self.exit_code = 128 + signum


class Pruned(Exception):
    """The run was asked to stop as unpromising (`Record.stop_asked`), after the last whole step."""

    outcome = "pruned"

    def __init__(self, step: int):
        super().__init__(f"stopped after step {step} as unpromising")
        self.step = step


class RunCallback(pl.Callback):
    """Drives one run. `writer` is None on every rank but 0.

    `batches` is this rank's share of the dev text, which has `n` lines; `mark` names the text beside its perplexities.
    """

    def __init__(
        self,
        events: EventSchedule,
        writer: CheckpointWriter | None,
        batches: list[Batch],
        n: int,
        mark: str,
        counters: RunCounters,
    ):
        self.events, self.writer, self.batches, self.n, self.mark = events, writer, batches, n, mark
        self.record, self.counters = None if writer is None else writer.record, counters
        self.signum = 0
        self.stopwatch = Stopwatch(counters.parts)
        self._clock = self._shown = self._asked = 0.0
        self._saved = time.monotonic()
        self._tried = self._late = 0
        self._rate: list[tuple[float, int]] = []

    @property
    def state_key(self) -> str:
        return "Conductor"  # its first name: checkpoints hold its state under it

    def state_dict(self) -> dict[str, Any]:
        return self.counters.state() | {"curve": "" if self.record is None else self.record.read_curve()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._module.sums = self.counters.load(state_dict, self._rank, self._world)
        if self.record is not None and "curve" in state_dict:
            self.record.restore_curve(state_dict["curve"])

    # --- hooks ---

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        assert isinstance(module, TransformerModule)
        self._module, self._rank, self._world = module, trainer.global_rank, trainer.world_size

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for signum in (signal.SIGTERM, signal.SIGINT):  # Lightning's own handlers broadcast from inside the handler
            with suppress(ValueError):  # not in the main thread
                signal.signal(signum, self._on_signal)
        if self.writer is not None:
            assert isinstance(module, TransformerModule)
            self.counters.note(backends_used(module))
        self._clock = time.perf_counter()
        self._rate = [(self._clock, self.counters.tokens["target"])]

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Step, batch_idx: int
    ) -> None:
        self._module.norm_wanted = self.events.logs(trainer.global_step + 1)
        self._lap("data")

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Step, batch_idx: int
    ) -> None:
        assert isinstance(module, TransformerModule)
        self._lap("train")
        if self.writer is not None:
            self.writer.check()
        step, when = trainer.global_step, self.events
        self.counters.this_attempt["last"] = step
        self.counters.add(batch)
        signum, due = self._agree(trainer, step)
        if signum == ASKED and step < when.steps:
            raise Pruned(step)
        signum = signum if signum > ASKED else 0  # at the last step the run is complete anyway
        if when.validates(step) or when.saves(step) or step in when.snapshot_steps() or signum or due:
            module.flush_losses()  # nothing is written from weights that are not finite
        if when.logs(step):
            self._log(module, step)
        self._lap("train")
        if when.validates(step):
            self._show(step, "validate", force=True)
            self._validate(module, step)
            self._lap("validate")
        if step in when.snapshot_steps() and self.writer is not None:
            self.writer.snapshot(module.transformer.state_dict(), step)
        if when.saves(step) or signum or due:
            self._save(trainer, module, step)
        self._lap("checkpoint")
        self._show(step, "train", force=step == when.steps)
        if signum:
            self._wait()
            raise Interrupted(signum)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, TransformerModule)
        if self._tried:
            self.counters.note([f"compiled after the first {WARM_UP:.0f} s of training: {self._late}"])
        self._wait()
        if self.signum > ASKED:  # it came after the last step had been checked
            raise Interrupted(self.signum)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        with suppress(Exception):  # the error that ends the run is reported
            self._wait()

    # --- parts ---

    def _on_signal(self, signum: int, frame: Any) -> None:
        self.signum = signum

    def _agree(self, trainer: pl.Trainer, step: int) -> tuple[int, bool]:
        """The signal that any rank received, and whether rank 0's clock asks for a checkpoint: the same on all ranks.

        A collective when there are several. A signal hides the clock: it brings a checkpoint itself.
        """
        self._look_for_request()
        every = 60 * self.events.checkpoint_minutes
        due = self.record is not None and 0 < every <= time.monotonic() - self._saved
        if trainer.world_size == 1:
            return self.signum, due
        if trainer.strategy.root_device.type == "cuda" and step % 10:  # reading it stalls the device
            return 0, False
        tensor = torch.tensor(2 * self.signum + due, device=trainer.strategy.root_device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor) // 2, bool(int(tensor) % 2)

    def _look_for_request(self) -> None:
        """Whether the run was asked to stop: rank 0 checks the disk, a few times a second."""
        now = time.perf_counter()
        if self.record is not None and not self.signum and now - self._asked >= REQUEST_SECONDS:
            self._asked = now
            if self.record.stop_asked():
                self.signum = ASKED

    def _lap(self, part: str) -> None:
        now, tried = time.perf_counter(), variants_tried()
        if part == "train" and self.counters.ran()[-1]["seconds"] > WARM_UP:
            self._late += tried - self._tried
        self.counters.seconds[part] += now - self._clock
        self._clock, self._tried = now, tried

    def _log(self, module: TransformerModule, step: int) -> None:
        loss, nll = (module.take_sums() / self.counters.pending_tokens).tolist()
        self.counters.pending_tokens = 0
        if self.record is not None:
            experiment = module.experiment
            rate = learning_rate(step - 1, experiment.model.d_model, experiment.training)
            line = {"step": step, "loss": loss, "nll": nll, "lr": rate, "target_tokens": self.counters.tokens["target"]}
            line["grad_norm"] = float(module.grad_norm)
            self.record.append_metrics(line | {"seconds": round(self.counters.seconds_trained(), 3)})

    def _validate(self, module: TransformerModule, step: int) -> None:
        score = perplexity(evaluate_lines(module, self.batches, self.n))
        if self.record is not None:
            line = {"step": step, "dev_nll": score.nll / score.tokens, "dev_ppl": score.ppl}
            self.record.append_metrics(line | {"dev": self.mark})
            self.counters.validated(module, step)

    def _save(self, trainer: pl.Trainer, module: TransformerModule, step: int) -> None:
        self.counters.shares = module.reduce(self.counters.share(module.sums, self._rank, self._world))
        how = None if self.writer is None else self.writer.checkpoint  # only rank 0 is asked to write
        trainer.save_checkpoint(f"step-{step:08d}.ckpt", storage_options=how)
        self._saved = time.monotonic()

    def _wait(self) -> None:
        if self.writer is not None:
            self.writer.wait()

    def _show(self, step: int, phase: str, force: bool = False) -> None:
        now = time.perf_counter()
        if self.record is None or not (force or now - self._shown >= PROGRESS_SECONDS):
            return
        self._shown = now
        self._rate = [*self._rate[-10:], (now, self.counters.tokens["target"])]
        (t0, n0), (t1, n1) = self._rate[0], self._rate[-1]
        self.record.write_progress(step, self.events.steps, (n1 - n0) / max(t1 - t0, 1e-9), phase)


class Stopwatch(pl.Callback):
    """Adds to `seconds` by part, and never waits for the device; dropout masks belong to forward. On a GPU the marks
    are events of its stream, read once it has passed them."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.gpu = False
        self._last: Any = None
        self._laps: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.gpu = module.device.type == "cuda"
        self._last = self._now()

    def on_before_backward(self, *_: Any) -> None:
        self._lap("forward")

    def on_after_backward(self, *_: Any) -> None:
        self._lap("backward")

    def on_train_batch_end(self, *_: Any) -> None:
        self._lap("optimizer")
        while self._laps and self._laps[0][2].query():  # those that the device has finished
            part, began, ended = self._laps.pop(0)
            self.seconds[part] += began.elapsed_time(ended) / 1e3

    def _lap(self, part: str) -> None:
        """The work since the last mark was `part`."""
        now = self._now()
        if self.gpu:
            self._laps.append((part, self._last, now))
        else:
            self.seconds[part] += now - self._last
        self._last = now

    def _now(self) -> Any:
        """Seconds; on a GPU an event of its stream."""
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


SKIPPED, TRACED = 10, 10
"""steps of this process before the trace, and in it"""
ROWS = 40


class Profile(pl.Callback):
    """Traces steps 11 to 20 of this process on one rank; writes trace.json, for chrome://tracing or Perfetto, and a
    table of operators, operators.txt, into `folder`.

    A process that trains fewer steps writes what it has. The profiler slows the traced steps, which the record counts.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.steps = 0
        self.running: profile | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        if self.steps == SKIPPED:
            gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self.running = profile(activities=[ProfilerActivity.CPU, *gpu], record_shapes=True, profile_memory=True)
            self.running.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        if self.steps == SKIPPED + TRACED:
            self._write()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._write()

    def _write(self) -> None:
        if self.running is None:
            return
        self.running.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.running.export_chrome_trace(str(self.folder / "trace.json"))
        order = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (self.folder / "operators.txt").write_text(self.running.key_averages().table(sort_by=order, row_limit=ROWS))
        self.running = None
