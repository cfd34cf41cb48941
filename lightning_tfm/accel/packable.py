"""What training without padding (packed.py) does not go with, known before torch is loaded."""

from lightning_tfm.config import Experiment, Hardware, Model
from lightning_tfm.errors import UserError
from lightning_tfm.parts import SCHEMES


def check_model(c: Model) -> None:
    """Raise UserError for what attention over segments does not know."""
    refused = {
        f"model.stack={c.stack}": c.one_stack,
        f"model.layer={c.layer}": c.layer != "attention",
        f"model.positions={c.positions}": SCHEMES.traits(c.positions).acts != "embedding",
        f"model.attention={c.attention}": c.attention != "softmax",
        f"model.scores={c.scores}": c.scores == "additive",
        f"model.P_attention={c.P_attention}": c.P_attention > 0,
        f"model.P_ff={c.P_ff}": c.P_ff > 0,
        f"model.d_v={c.d_v} beside model.d_k={c.d_k}": c.d_v != c.d_k,
    }
    _refuse(refused)


def check(experiment: Experiment, hardware: Hardware) -> None:
    """Raise UserError where `trainer.packed` does not apply."""
    _refuse(
        {
            f"training.masks={experiment.training.masks}": experiment.training.masks != "sentence",
            f"trainer.devices={hardware.devices}": hardware.devices > 1,
            f"trainer.num_nodes={hardware.num_nodes}": hardware.num_nodes > 1,
            f"trainer.micro_tokens={hardware.micro_tokens}": hardware.micro_tokens > 0,
            "trainer.compile": hardware.compile,
        }
    )
    check_model(experiment.model)


def _refuse(refused: dict[str, bool]) -> None:
    for name, wrong in refused.items():
        if wrong:
            raise UserError(f"trainer.packed does not go with {name}: remove one of them")
