"""What leaves a trained run: scores of other texts, translations of files, exports, predictions."""

import json
from dataclasses import replace

import ctranslate2
import numpy as np
import pytest
import torch

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.inference.export import load_exported, to_ctranslate2, to_safetensors, unlike_ctranslate2
from lightning_tfm.inference.find import experiment_of
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.runs.folder import RunFolder
from tests.helpers.tiny import experiment, in_child, train, write_corpus

SQUARE = {"model__d_k": 8, "model__d_v": 8}
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
    e = experiment(text, **SQUARE, training__average_last=2, training__average_every=5)
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


@pytest.mark.long
def test_files_of_any_length_in_order_on_several_processes(run, tmp_path, capsys, monkeypatch):
    for module in ("load", "translate"):  # one process reads by the first, several by the second
        monkeypatch.setattr(f"lightning_tfm.inference.{module}.BLOCK", 64)
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
