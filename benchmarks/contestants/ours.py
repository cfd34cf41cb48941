"""Ours, as a user runs it: the LightningModule in a Trainer with the callback of every run; beam search to decode."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.contestants.loop import sources
from benchmarks.contestants.protocol import Seat, arguments, serve
from lightning_tfm.accel import select
from lightning_tfm.accel.onednn import PackedTransformer
from lightning_tfm.config import Experiment, Hardware, from_dict
from lightning_tfm.data.batch import Step
from lightning_tfm.data.module import StepLoader, TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.runs.process.threads import keep_freed_memory
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.training.callback import RunCallback
from lightning_tfm.training.counters import RunCounters
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule

NEVER = 1 << 40


class AskedLoader:
    """The steps that the referee asks for, made from the store as in training. A turn is over when the next step
    after its last is asked for: all that Lightning and the callbacks do in between counts.
    """

    def __init__(self, seat: Seat, steps: StepLoader, numbers: list[int]):
        self.seat, self.steps, self.numbers = seat, steps, numbers

    def __len__(self) -> int:  # else Lightning would ask for a step more than it works on
        return NEVER

    def __iter__(self) -> Iterator[Step]:
        for batches in self.seat.turns():
            for i in batches:
                yield self.steps.step(self.numbers[i])
            self.seat.done()
        sys.exit()  # else the Trainer would begin another epoch


def train(products: str = "torch") -> None:
    _, _, sizes = arguments()
    seat = Seat()
    experiment = from_dict(Experiment, sizes["experiment"])
    hardware = Hardware(accelerator="cpu", threads=sizes["threads"], products=products)
    prepare_process(hardware)
    data = TranslationData(experiment, prepare(experiment.data, Path(sizes["root"])))
    backend = select.backend(hardware, "float32", torch.device("cpu"))
    module = TransformerModule(experiment, sizes["V"], backend)
    events = EventSchedule(NEVER, hardware.log_every, NEVER, NEVER)
    callback = RunCallback(events, None, [], 0, "", RunCounters())
    trainer = make_trainer(experiment, hardware, [callback])
    steps = StepLoader(data.plan(), data.prepared.split(experiment.data.train), 0, 0, 1, 0)
    seat.say({"parameters": sum(p.numel() for p in module.parameters())})
    trainer.fit(module, AskedLoader(seat, steps, sizes["steps"]))


def decode(folder: Path, sizes: dict, packed: bool = False):
    experiment = from_dict(Experiment, sizes["experiment"])
    module = TransformerModule(experiment, sizes["V"])
    module.transformer.load_state_dict(torch.load(folder / "weights.pt"))
    model, how = module.transformer.eval(), experiment.evaluation
    if packed:
        model = PackedTransformer(model)
    keep_freed_memory()  # as `translate` does

    def translate(number: int) -> list[list[int]]:
        source_BS, _ = sources(folder, number)
        hypotheses = beam_search(model, source_BS, how.beam, how.alpha, how.extra_len)
        return [best[0].pieces for best in hypotheses]

    return translate, {}


if __name__ == "__main__":
    if arguments()[0].startswith("train"):
        train("onednn" if arguments()[0] == "train_onednn" else "torch")
    else:
        serve(
            {
                "decode": decode,
                "decode_packed": lambda folder, sizes: decode(folder, sizes, packed=True),
                "decode_exact": decode,
            }
        )
