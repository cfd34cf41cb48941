"""Attention looked at from outside, and weights for other programs."""

import json
import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import ctranslate2
import numpy as np
import pytest
import torch

from lightning_tfm.cli.main import main
from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.inference.attention_hooks import attention_places, some_lines, watch_attention
from lightning_tfm.inference.export import load_exported, to_ctranslate2, to_safetensors, unlike_ctranslate2
from lightning_tfm.inference.head_ablation import without
from lightning_tfm.inference.load import Trained
from lightning_tfm.inference.weight_records import COUNTS, count_saturation, measure_softmax, schemes, weights
from lightning_tfm.metrics import METRICS
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.positions import sinusoids
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.runs.folder import RunFolder, experiment_of
from tests.helpers.tiny import TINY, experiment, in_child, train, write_corpus

SQUARE = {"model__d_k": 8, "model__d_v": 8}
AVERAGED = {"training__average_last": 2, "training__average_every": 5}
VARIANTS = {
    "post": {},
    "pre, learned, biases": {"model__norm": "pre", "model__positions": "learned", "model__attention_bias": True},
    "gelu, untied": {"model__feed_forward": "gelu", "model__tie": "none"},
    "gated, no biases": {"model__feed_forward": "swiglu", "model__norm": "pre", "model__bias": False},
    "rms": {"model__norm_kind": "rms", "model__norm": "pre"},
    "first code": {"model__sinusoid_layout": "concatenated", "model__target_spaces": 4, "model__norm_eps": 1e-3},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    """A finished run with snapshots: (its directory, the root)."""
    root = tmp_path_factory.mktemp("root")
    e = experiment(text, **SQUARE, **AVERAGED)
    return in_child(train, e, root), root


def opened(run) -> Trained:
    folder = RunFolder(run[1], run[0].name)
    return Trained.open(folder, experiment_of(folder))


def test_another_set_with_single_and_averaged_weights(run, text, capsys):
    for language in ("en", "de"):
        (text / f"more.{language}").write_bytes((text / f"val.{language}").read_bytes())
    assert main(["test", str(run[0]), "--set", "more", "--trainer.threads", "1"]) == 0
    said = capsys.readouterr().out
    assert "test (more): PPL" in said and "last weights" in said and "average weights" in said
    assert said.count("chrf") == 2 and "multi-bleu" in said and "tok:13a" in said
    # the same text is the same evaluation, wherever it lies
    (of_dev,) = [p for p in run[0].glob("scores/*/val.json") if json.loads(p.read_bytes())["weights"] == "last"]
    (of_more,) = [p for p in run[0].glob("scores/*/more.json") if json.loads(p.read_bytes())["weights"] == "last"]
    dev, more = json.loads(of_dev.read_bytes()), json.loads(of_more.read_bytes())
    assert {dev[k] == more[k] for k in ("nll", "bleu", "evaluation_hash", "sentences")} == {True}
    assert main(["test", str(run[0]), "--set", "nothing"]) == 2
    assert "has neither nothing.en" in capsys.readouterr().err
    assert main(["test", str(run[0]), "--set", "wmt14-en-de:newstest2014"]) == 2
    assert "lightning-tfm data prepare wmt14-en-de" in capsys.readouterr().err
    assert main(["test", str(run[0]), "--set", "wmt15:x"]) == 2
    assert "no corpus 'wmt15'" in capsys.readouterr().err
    assert main(["test", str(run[0]), "--set", "builtin-lines:val"]) == 2
    assert "builtin-lines has no source, and the run translates" in capsys.readouterr().err


@pytest.mark.long
def test_files_of_any_length_in_order_on_several_processes(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lightning_tfm.inference.load.BLOCK", 64)
    lines = [f"ka lo mi {'nu ' * (i % 9)}pe" if i % 7 else "" for i in range(150)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    common = [str(run[0]), "--input", str(tmp_path / "in.txt"), "--evaluation.extra_len", "2", "--trainer.threads", "1"]
    assert main(["translate", *common, "--to", str(tmp_path / "one.txt"), "--trainer.accelerator", "cpu"]) == 0
    (tmp_path / "in.txt").write_bytes(
        "".join(f"{line}\r\n" for line in lines).encode()
    )  # line ends as corpora take them
    assert main(["translate", *common, "--to", str(tmp_path / "two.txt"), "--trainer.devices", "2"]) == 0
    one = (tmp_path / "one.txt").read_text()
    assert one == (tmp_path / "two.txt").read_text() and one.count("\n") == 150
    assert [not line for line in one.split("\n")[:-1]].count(True) >= 22
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines[:40]))
    assert main(["translate", *common, "--to", str(tmp_path / "n.txt"), "--n_best", "3", "--packed"]) == 0
    rows = [line.split(" ||| ") for line in (tmp_path / "n.txt").read_text().split("\n")[:-1]]
    second = [row for row in rows if row[0] == "2"]
    assert len(second) == 3 and second[0][1] == one.split("\n")[1]
    assert [float(row[2]) for row in second] == sorted((float(row[2]) for row in second), reverse=True)
    assert main(["translate", *common, "--n_best", "9"]) == 2
    assert "from 1 to evaluation.beam=4" in capsys.readouterr().err


def test_by_configuration_the_text_of_now_is_scored_and_by_name_the_run_s_own(run, text, capsys):
    changes = TINY | {key.replace("__", "."): value for key, value in (SQUARE | AVERAGED).items()}
    options = [*(f"--{key}={value}" for key, value in changes.items()), f"--data.folder={text}", f"--out={run[1]}"]
    references = (text / "val.de").read_bytes()

    def ppl(*argv: str) -> tuple[str, str]:
        assert main(["validate", *argv, "--trainer.threads", "1"]) == 0
        said = capsys.readouterr()
        return said.out.split("PPL ")[1].partition(",")[0], said.err

    before = ppl(*options)
    assert ppl(str(run[0]))[0] == before[0]
    try:
        (text / "val.de").write_bytes(references.swapcase())
        configured, of_run, present = ppl(*options), ppl(str(run[0])), ppl(str(run[0]), "--set", "files:val")
    finally:
        (text / "val.de").write_bytes(references)
    assert configured[0] == present[0] != before[0] == of_run[0]
    assert "val was edited since the run" in of_run[1] and "--set files:val scores" in of_run[1]
    assert "was edited" not in before[1] + configured[1] + present[1]


OWN = """from lightning_tfm.corpus_metrics import Summed


class Lines(Summed):
    WIDTH = 2

    def counts(self, hypotheses):
        return [[1, 1] for _ in hypotheses]

    @staticmethod
    def score(sums_X):
        return {} * sums_X[..., 0] / sums_X[..., 1]
"""


def test_a_metric_whose_code_has_changed_is_counted_anew(run, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    for factor in (100, 7):
        (tmp_path / "own_lines.py").write_text(OWN.replace("{}", str(factor)))
        argv = ["--evaluation.metrics", "own_lines:Lines", "--evaluation.beam", "1", "--trainer.threads", "1"]
        assert main(["validate", str(run[0]), *argv]) == 0
        said = capsys.readouterr().out
        assert re.findall(r"own_lines:Lines +([\d.]+)", said) == [f"{factor:.2f}"] * 2
        del sys.modules["own_lines"], METRICS["own_lines:Lines"]


def test_a_byte_order_mark_is_not_translated(run, tmp_path):
    written = []
    for mark in ("", "\ufeff"):
        (tmp_path / "in.txt").write_text(f"{mark}ka lo mi\nnu pe\n", encoding="utf-8")
        files = ["--input", str(tmp_path / "in.txt"), "--to", str(tmp_path / "out.txt")]
        assert main(["translate", str(run[0]), *files, "--scores", "--trainer.threads", "1"]) == 0
        written.append((tmp_path / "out.txt").read_text())
    assert written[0] == written[1]


def test_safetensors_load_without_the_run(run, tmp_path):
    trained = opened(run)
    to_safetensors(trained, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.model",
    ]
    model, config = load_exported(tmp_path / "out")
    source, target = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 5, 6]])
    assert torch.equal(model(source, target), trained.module.transformer(source, target))
    assert config["languages"] == ["en", "de"] and config["ids"]["end"] == 3
    with pytest.raises(UserError, match="is not empty"):
        to_safetensors(trained, tmp_path / "out")


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_translates_alike(run, text, tmp_path, variant):
    from lightning_tfm.training.module import TransformerModule

    trained, e = opened(run), experiment(text, **SQUARE, **VARIANTS[variant])
    if variant != "post":
        torch.manual_seed(1)
        trained.module = TransformerModule(e, trained.prepared.tokenizer.V).eval()
        for parameter in trained.module.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    to_ctranslate2(trained, tmp_path / "ct2")
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32", intra_threads=1)
    tokenizer, model = trained.prepared.tokenizer, trained.module.transformer
    sources = [row for row in tokenizer.encode(trained.prepared.split("val").source_text()) if len(row)]
    scores, equal = [], 0
    barred = [["<pad>"], ["<s>"]]  # which our search never takes
    for ids in sources:
        tokens, source_BS = [[tokenizer.piece(i) for i in ids]], torch.tensor([[*ids.tolist(), 3]])
        for beam, alpha in ((1, 0.0), (4, 0.6)):
            options = {"beam_size": beam, "length_penalty": alpha, "min_decoding_length": 0}
            if beam == 1:  # it renormalises without them, which changes scores between lengths
                options["suppress_sequences"] = barred
            (best,) = theirs.translate_batch(tokens, max_decoding_length=20, **options)
            if beam == 1:  # with more, it stops and normalises otherwise than the paper
                ((ours,),) = beam_search(model, source_BS, beam, alpha, 20 - len(ids))
                equal += best.hypotheses[0] == [tokenizer.piece(i) for i in ours.pieces]
        # forced: the same probabilities for the translation of theirs, of the wider beam
        (scored,) = theirs.score_batch(tokens, [best.hypotheses[0]])
        pieces = [2, *(tokenizer_id(tokenizer, piece) for piece in best.hypotheses[0])]
        logits = model(torch.tensor([[*ids.tolist(), 3]]), torch.tensor([pieces]))
        wanted = torch.tensor([*pieces[1:], 3])
        logprob = torch.log_softmax(logits[0], -1)[torch.arange(len(wanted)), wanted]
        scores.append(np.abs(logprob.detach().numpy() - scored.log_probs).max())
    assert max(scores) < 1e-4 and equal == len(sources) > 5


def tokenizer_id(tokenizer, piece: str) -> int:
    return [tokenizer.piece(i) for i in range(tokenizer.V)].index(piece)


def test_what_ctranslate2_cannot_hold_is_named(text):
    model = experiment(text).model
    own = {"positions": "rotary", "feed_forward": "relu2", "norm": "sandwich", "kv_heads": 1, "qk_norm": True}
    assert unlike_ctranslate2(replace(model, **own)) == [
        "d_k=6, d_v=5 are not d_model/h=8",
        "positions=rotary act within attention",
        "kv_heads=1 are shared by several queries",
        "qk_norm acts within attention",
        "norm=sandwich has norms within the residual",
        "feed_forward=relu2 is not one of relu, gelu, swiglu, geglu",
    ]


def test_heads_and_beams_of_a_run(run, capsys):
    argv = ["inspect", str(run[0]), "--lines", "5", "--beams", "[1, 3]", "--threads", "1"]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "One head ablated, 5 lines" in said and "tokens / reference" in said
    heads, beams = (json.loads((run[0] / "report" / f"{name}.json").read_bytes()) for name in ("heads", "beams"))
    assert [len(layer) for kind in ("encoder", "decoder", "cross") for layer in heads["heads"][kind]] == [2] * 6
    for layers in heads["heads"].values():
        assert all(head["low"] < head["nll"] < head["high"] for layer in layers for head in layer)
    assert [one["beam"] for one in beams["beams"]] == [1, 3] and (run[0] / "report" / "heads.svg").is_file()
    assert main([*argv, "--what", "tails"]) == 2
    assert "--what=tails: valid: beams, heads" in capsys.readouterr().err


SIZES = {"N": 2, "d_model": 12, "d_ff": 9, "h": 3, "d_k": 4, "d_v": 5, "neighbourhood": 3}


def shown(**change) -> dict[str, np.ndarray]:
    trained = SimpleNamespace(module=SimpleNamespace(transformer=make_model(Model(**SIZES, **change), 31).eval()))
    found = weights(trained, np.arange(5, 12), np.arange(5, 11))
    return {kind: np.array(layers) for kind, layers in found.items()}


def test_a_restricted_layer_shows_its_neighbourhood_alone():
    found = shown(layer="restricted")
    assert found["encoder"].shape == (2, 3, 8, 8) and found["cross"].shape == (2, 3, 7, 8)
    offset = np.arange(8) - np.arange(8)[:, None]
    assert ((found["encoder"] > 0).any((0, 1)) == (abs(offset) <= 1)).all()
    offset = offset[:7, :7]
    assert ((found["decoder"] > 0).any((0, 1)) == ((offset <= 0) & (offset > -3))).all()


@pytest.mark.parametrize("scores", ["unscaled", "additive", "cosine"])
def test_weights_are_those_of_the_scores(scores):
    sums = {kind: found.sum(-1) for kind, found in shown(scores=scores).items()}
    assert all(abs(total - 1000).max() <= 5 for total in sums.values())
    assert (shown(scores=scores)["cross"] != shown()["cross"]).any()


def test_a_layer_without_attention_shows_none():
    found = shown(layer="lstm")
    assert found["encoder"].size == found["decoder"].size == 0 and found["cross"].shape == (2, 3, 7, 8)


@pytest.mark.parametrize(
    ("change", "seen"), [({"stack": "prefix"}, 8), ({"stack": "causal", "attention": "talking"}, 1)]
)
def test_one_stack_shows_three_parts_of_its_weights(change, seen):
    """Between source and source, target and target, target and source, whose queries see all keys."""
    found = shown(**change)
    shapes = {kind: weights.shape for kind, weights in found.items()}
    assert shapes == {"encoder": (2, 3, 8, 8), "decoder": (2, 3, 7, 7), "cross": (2, 3, 7, 8)}
    assert ((found["encoder"] != 0).any((0, 1)).sum(-1)[0], (found["decoder"] != 0).any((0, 1)).sum(-1)[0]) == (seen, 1)
    if "attention" not in change:
        assert abs(found["decoder"].sum(-1) + found["cross"].sum(-1) - 1000).max() <= 8


# --- footnote 4 ---


def test_a_softmax_is_saturated_by_the_trace_of_its_jacobian():
    """Uniform, one of 0.98 and one of 0.992 among three keys; traces 0.67, 0.039 and 0.016."""
    p_HTS = torch.tensor([[[1 / 3] * 3, [0.98, 0.01, 0.01], [0.992, 0.004, 0.004]]])
    gradient_HTS = torch.tensor([[[1.0, 0.0, -1.0], [3.0, 0.0, 0.0], [0.0, 5.0, 0.0]]])
    found = dict(
        zip(COUNTS, count_saturation(p_HTS, gradient_HTS, torch.full((3,), 3).double())[0].tolist(), strict=True)
    )
    entropy = sum(-sum(x * math.log(x) for x in p) for p in p_HTS[0].tolist()) / math.log(3)
    assert found == pytest.approx(
        {"softmaxes": 3, "entropy": entropy, "saturated": 1, "gradient": 10, "gradient_saturated": 5}, rel=1e-5
    )
    causal = count_saturation(
        torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), torch.ones(1, 2, 2), torch.arange(1, 3).double()
    )[0].tolist()
    assert causal == pytest.approx([1, 1, 0, 2, 0]), "the first query sees one key alone and is left out"


class Text:
    """Ten pairs of some pieces."""

    def __len__(self) -> int:
        return 10

    def source(self, i: int) -> np.ndarray:
        return np.arange(4, 9 + i)

    target = source


@pytest.mark.parametrize("change", [{}, {"scores": "additive"}, {"positions": "shaw_values"}, {"layer": "lstm"}])
def test_softmaxes_are_those_of_the_model_and_are_left_as_they_were(change):
    model, batches = Transformer(Model(**SIZES, **change), 31).eval(), some_lines(Text(), 3)
    assert [len(one.source_BS[0]) for one in batches] == [6, 10, 15]
    before = model(batches[1].source_BS, batches[1].target_in_BT)
    found = measure_softmax(model, batches)
    assert torch.equal(model(batches[1].source_BS, batches[1].target_in_BT), before)
    layers = [0, 0, 2] if "layer" in change else [2, 2, 2]
    assert [len(found[kind]) for kind in ("encoder", "decoder", "cross")] == layers
    for kind, layers in found.items():
        queries = 6 + 10 + 15 - (3 if kind == "decoder" else 0)
        assert all(head[0] == queries and 0 < head[1] <= queries and head[3] > 0 for layer in layers for head in layer)


@pytest.mark.parametrize(("stack", "alone"), [("prefix", 0), ("causal", 3)])
def test_softmaxes_of_one_stack_are_those_of_source_and_target(stack, alone):
    """Entropies are over the logarithm of the keys that each sees: of equal scores all are 1."""
    model = make_model(Model(**SIZES, stack=stack), 31).eval()
    for layer in model.decoder:
        layer.self_attention.W_QKV.weight.data[:12] = 0.0
    found = measure_softmax(model, some_lines(Text(), 3))
    assert not found["encoder"] and not found["cross"] and len(found["decoder"]) == 2
    for count, entropy, *_ in (head for layer in found["decoder"] for head in layer):
        assert count == 2 * (6 + 10 + 15) - alone and entropy == pytest.approx(count, rel=1e-6)


def test_watched_attention_gives_the_same_results_and_larger_scores_saturate():
    model, batches = Transformer(Model(**SIZES, scores="unscaled"), 31).double().eval(), some_lines(Text(), 3)
    seen = []

    plain = model(batches[0].source_BS, batches[0].target_in_BT)
    with watch_attention(attention_places(model)[:1], lambda place, look: seen.append((place.kind, look.bias))):
        watched = model(batches[0].source_BS, batches[0].target_in_BT)
    assert (watched - plain).abs().max() < 1e-12 and seen == [("encoder", None)]
    shares = []
    for factor in (1.0, 30.0):
        for _, _, module in attention_places(model):
            (module.W_QKV if hasattr(module, "W_QKV") else module.W_Q).weight.data *= factor
        sums = np.array(
            [head for layers in measure_softmax(model, batches).values() for layer in layers for head in layer]
        )
        shares.append(sums[:, 2].sum() / sums[:, 0].sum())
    assert shares[0] < 0.05 < 0.3 < shares[1]


# --- positions ---


def told(positions: str, **change) -> dict:
    model = make_model(Model(**(SIZES | change), positions=positions), 31).eval()
    return schemes(SimpleNamespace(module=SimpleNamespace(transformer=model)), Text())["stacks"]


def test_embeddings_are_drawn_as_they_are_and_wide_ones_by_every_other_channel():
    for width, step in ((12, 1), (130, 3)):
        found = told("sinusoidal", d_model=width)
        assert found["encoder"] == found["decoder"] and found["encoder"]["step"] == step
        expected = sinusoids(48, width, "interleaved")[:, ::step].numpy()
        assert np.array(found["encoder"]["values"]) == pytest.approx(expected, abs=1e-3)
    assert told("none") == {}


def test_positions_of_one_stack_are_told_once():
    assert list(told("sinusoidal", stack="prefix")) == list(told("rotary", stack="causal")) == ["decoder"]
    prefix, causal = (told("alibi", stack=stack)["decoder"] for stack in ("prefix", "causal"))
    assert (prefix["first"], len(prefix["values"][0])) == (-29, 44), "the source sees what comes after it"
    assert (causal["first"], len(causal["values"][0])) == (-29, 30)


def test_a_rotation_is_drawn_by_its_cosines():
    values = np.array(told("rotary")["encoder"]["values"])
    angles = np.arange(48)[None] * 10000.0 ** -(np.repeat(np.arange(2), 2) / 2)[:, None]
    assert values == pytest.approx(np.cos(angles), abs=1e-3)


def test_a_bias_is_drawn_by_distance_and_what_no_query_sees_is_not():
    found = told("alibi")
    assert found["encoder"]["first"] == -14 and len(found["encoder"]["values"][0]) == 29
    assert found["decoder"]["first"] == -14 and len(found["decoder"]["values"][0]) == 15
    for i, head in enumerate(found["encoder"]["values"]):
        assert head == pytest.approx(-(2 ** (-8 * (i % 3 + 1) / 3)) * abs(np.arange(-14, 15)), rel=1e-3)
    assert len(told("shaw_values")["encoder"]["values"]) == 6


# --- heads and beams ---


@pytest.mark.parametrize("change", [{}, {"layer": "restricted"}, {"kv_heads": 1}, {"scores": "additive"}])
def test_a_head_at_zero_is_one_whose_part_of_the_output_matrix_is_zero(change):
    model = Transformer(Model(**SIZES, **change), 31).double().eval()
    (batch,) = some_lines(Text(), 1)
    for kind in ("encoder", "decoder", "cross"):
        module = next(place.module for place in attention_places(model) if place.kind == kind)
        before = model(batch.source_BS, batch.target_in_BT)
        with without(module, 1):
            found = model(batch.source_BS, batch.target_in_BT)
        assert (found != before).any() and torch.equal(model(batch.source_BS, batch.target_in_BT), before)
        kept = module.W_O.weight.data.clone()
        module.W_O.weight.data[:, 5:10] = 0  # the second of three heads of d_v 5
        torch.testing.assert_close(model(batch.source_BS, batch.target_in_BT), found, atol=1e-12, rtol=0)
        module.W_O.weight.data = kept
