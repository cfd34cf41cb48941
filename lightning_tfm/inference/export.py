"""A trained run in other programs' formats: safetensors with tokenizer and sizes, and CTranslate2.

safetensors: `model.safetensors` (names as in model/transformer.py), `tokenizer.model` (SentencePiece) and `config.json`
(sizes, special pieces, languages, decoding). `load_exported` reads them back.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.config import Experiment, Model, from_dict, to_dict
from lightning_tfm.data.text.tokenizer import PIECES
from lightning_tfm.errors import UserError
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.attention import FusedLinear
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, LAYERS, NORMS, SCHEMES
from lightning_tfm.special_tokens import BOS, EOS, PAD, UNK

VERSION = 1
LONGEST = 4096
"""positions that an exported table of sinusoids holds"""


def to_safetensors(trained: Trained, folder: Path) -> Path:
    """Write weights, tokenizer and config into a new folder. Raises UserError where it is not empty."""
    save_file = _safetensors().save_file
    _new(folder)
    model = trained.module.transformer
    weights = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _copy_tokenizer(trained, folder)
    _write_config(trained.module.experiment, model.V, folder)
    return folder


def load_exported(folder: Path) -> tuple[SequenceModel, dict[str, Any]]:
    """The model in evaluation mode, and config.json, from a folder that `to_safetensors` wrote: no YAML, no run."""
    config = json.loads((folder / "config.json").read_bytes())
    if config["version"] != VERSION:
        raise UserError(f"{folder}: version {config['version']}, this package reads {VERSION}")
    model = make_model(from_dict(Model, config["model"]), config["V"])
    model.load_state_dict(_safetensors().load_file(folder / "model.safetensors"))
    return model.eval(), config


def to_ctranslate2(trained: Trained, folder: Path) -> Path:
    """Write a CTranslate2 model that translates alike. Raises UserError naming what its architecture does not have."""
    spec = ctranslate2_spec(trained)
    _new(folder)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    _copy_tokenizer(trained, folder)
    return folder


def _copy_tokenizer(trained: Trained, folder: Path) -> None:
    name = PIECES if trained.prepared.tokenizer.ready else "tokenizer.model"
    shutil.copyfile(trained.prepared.folder / name, folder / name)


def ctranslate2_spec(trained: Trained) -> Any:
    """ctranslate2's TransformerSpec with the weights of `trained`."""
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    except ImportError as error:
        raise UserError("the export to CTranslate2 needs it: pip install 'lightning_tfm[export]'") from error
    model, m = trained.module.transformer, trained.module.experiment.model
    if faults := unlike_ctranslate2(m):
        raise UserError("CTranslate2 cannot hold this architecture: " + "; ".join(faults))
    spec = TransformerSpec.from_config(
        (m.N, m.N),
        m.h,
        pre_norm=m.norm == "pre",
        rms_norm=NORMS[m.norm_kind].exports == "RMSNorm",
        activation=Activation[FEED_FORWARDS[m.feed_forward].exports],
        ffn_glu=isinstance(model.encoder[0].feed_forward.W_1, FusedLinear),
    )
    spec.config.layer_norm_epsilon = m.norm_eps
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token, spec.config.add_source_eos = "<s>", True
    tokenizer = trained.prepared.tokenizer
    pieces = [tokenizer.piece(i) for i in range(tokenizer.V)]
    assert [pieces[i] for i in (PAD, UNK, BOS, EOS)] == ["<pad>", "<unk>", "<s>", "</s>"], "ids of the special tokens"
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)

    scale = math.sqrt(m.d_model)
    extra_D = model.target_space_D[0] if model.target_space_D is not None else torch.zeros(m.d_model)
    target_WD = model.embedding_WD if model.target_WD is None else model.target_WD
    for side, positions, added_D, embedding_WD in (
        (spec.encoder, model.encoder_positions, extra_D, model.embedding_WD),
        (spec.decoder, model.decoder_positions, torch.zeros(m.d_model), target_WD),
    ):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight, embeddings.multiply_by_sqrt_depth = _numpy(embedding_WD), False
        side.scale_embeddings = np.float32(scale)
        ends_at = SCHEMES.traits(m.positions).ends_at
        longest = getattr(m, ends_at) if ends_at else LONGEST
        table_TD = positions.embed(torch.zeros(1, longest, m.d_model), 1.0, 0)[0] + added_D
        side.position_encodings.encodings = _numpy(table_TD)
    for side, layers, norm in (
        (spec.encoder, model.encoder, model.encoder_norm),
        (spec.decoder, model.decoder, model.decoder_norm),
    ):
        for there, here in zip(side.layer, layers, strict=True):
            _fill_layer(there, here)
        if not isinstance(norm, torch.nn.Identity):
            _norm(side.layer_norm, norm)
    spec.decoder.projection.weight = _numpy(model.generator_WD)
    spec.decoder.projection.bias = np.zeros(len(pieces), dtype=np.float32)
    return spec


def unlike_ctranslate2(m: Model) -> list[str]:
    """What in `m` CTranslate2 has no place for."""
    faults = [f"stack={m.stack} has no encoder"] * m.one_stack
    if not m.d_k == m.d_v == m.d_model / m.h:
        faults.append(f"d_k={m.d_k}, d_v={m.d_v} are not d_model/h={m.d_model / m.h:g}")
    if not LAYERS.traits(m.layer).exports:
        faults.append(f"layer={m.layer} replaces self-attention")
    if not ATTENTIONS.traits(m.attention).exports:
        faults.append(f"attention={m.attention} replaces softmax")
    if SCHEMES.traits(m.positions).acts != "embedding":
        faults.append(f"positions={m.positions} act within attention")
    elif not SCHEMES.traits(m.positions).exports:
        faults.append(f"positions={m.positions} are not declared to be a table that is added (exports)")
    if m.kv_heads not in (0, m.h):
        faults.append(f"kv_heads={m.kv_heads} are shared by several queries")
    if m.qk_norm:
        faults.append("qk_norm acts within attention")
    if m.scores != "scaled":
        faults.append(f"scores={m.scores} are not q·k / sqrt(d_k)")
    if m.norm == "sandwich":
        faults.append("norm=sandwich has norms within the residual")
    for kind, name in ((NORMS, m.norm_kind), (FEED_FORWARDS, m.feed_forward)):
        if not kind.traits(name).exports:
            others = ", ".join(part.name for part in kind.values() if part.exports)
            faults.append(f"{kind.field.partition('.')[2]}={name} is not one of {others}")
    return faults


def _fill_layer(there: Any, here: Any) -> None:
    _linear(there.self_attention.linear[0], here.self_attention.W_QKV)
    _linear(there.self_attention.linear[1], here.self_attention.W_O)
    _norm(there.self_attention.layer_norm, here.residual_1.norm)
    last = here.residual_2.norm
    if hasattr(here, "cross_attention"):
        _linear(there.attention.linear[0], here.cross_attention.W_Q)
        _linear(there.attention.linear[1], here.cross_attention.W_KV)
        _linear(there.attention.linear[2], here.cross_attention.W_O)
        _norm(there.attention.layer_norm, here.residual_2.norm)
        last = here.residual_3.norm
    _norm(there.ffn.layer_norm, last)
    W_1, W_2 = here.feed_forward.W_1, here.feed_forward.W_2
    if isinstance(W_1, FusedLinear):
        _linear(there.ffn.linear_0, W_1, slice(0, W_1.parts["gate"]))
        _linear(there.ffn.linear_0_noact, W_1, slice(W_1.parts["gate"], None))
    else:
        _linear(there.ffn.linear_0, W_1)
    _linear(there.ffn.linear_1, W_2)


def _linear(there: Any, here: torch.nn.Linear, rows: slice = slice(None)) -> None:
    there.weight = _numpy(here.weight[rows])
    there.bias = _numpy(torch.zeros(here.out_features) if here.bias is None else here.bias)[rows]


def _norm(there: Any, here: Any) -> None:
    there.gamma = _numpy(here.weight)
    if isinstance(here, torch.nn.LayerNorm):
        there.beta = _numpy(torch.zeros_like(here.weight) if here.bias is None else here.bias)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def _write_config(experiment: Experiment, V: int, folder: Path) -> None:
    plain = to_dict(experiment)
    config = {
        "version": VERSION,
        "model": plain["model"],
        "V": V,
        "ids": {"pad": PAD, "unk": UNK, "begin": BOS, "end": EOS},
        "languages": list(experiment.data.languages),
        "evaluation": plain["evaluation"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UserError("safetensors is not installed: pip install 'lightning_tfm[export]'") from error
    return safetensors.torch


def _new(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and is not empty: give another folder with --folder")
    folder.mkdir(parents=True, exist_ok=True)
