"""Configuration and scoring."""

import dataclasses
import math
from dataclasses import fields, replace

import pytest

from lightning_tfm.bleu import bleu, paper_bleu, paper_tokens
from lightning_tfm.config import (
    Data,
    Evaluation,
    Experiment,
    Hardware,
    Miniature,
    Model,
    Training,
    evaluation_hash,
    from_dict,
    override,
    to_dict,
    training_hash,
    training_identity,
)
from lightning_tfm.corpus_metrics import Chrf
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.metrics import METRICS, Metrics
from lightning_tfm.parseval import F1

CHOICES = {"norm": "pre", "sinusoid_layout": "concatenated", "init": "unit_scaling", "schedule": "linear"}
CHOICES |= {"smoothing": "others", "precision": "float64", "masks": "device", "weights": "average", "bad_lines": "drop"}
CHOICES |= {"accelerator": "cpu", "tie": "none"}
CHOICES |= {"layer_width": "parameters", "scores": "additive", "stack": "prefix"}
ACTS = {"cooldown": {"training": {"schedule": "wsd"}}}
ACTS |= {"kernel": {"model": {"layer": "dilated"}}, "neighbourhood": {"model": {"layer": "restricted"}}}
ACTS |= {"clip": {"model": {"positions": "shaw"}}}
ACTS |= {"layer_width": {"model": {"layer": "gru"}}, "attention_where": {"model": {"attention": "gated"}}}
"""field -> experiment in which it acts, where that is not base"""


def flipped(section, name: str):
    """`section` with one field at another value."""
    value = getattr(section, name)
    if name in CHOICES:
        other = CHOICES[name]
    elif isinstance(value, bool):
        other = not value
    elif isinstance(value, int):
        other = value * 2 if value else 3
    elif isinstance(value, float):
        other = value / 2 if value else 0.25
    else:
        other = value + "x"
    assert other != value
    return replace(section, **{name: other})


def hashes(experiment: Experiment, train: str = "t", dev: str = "d", classes=None) -> tuple[str, str]:
    identity = training_identity(experiment, train, classes or {})
    return training_hash(identity), evaluation_hash(experiment, dev)


def names(cls) -> list[str]:
    return [f.name for f in fields(cls)]


BASE = Experiment()


@pytest.mark.parametrize(
    ("section", "name"),
    [("model", n) for n in names(Model)] + [("training", n) for n in names(Training)] + [("data", "max_len")],
)
def test_what_decides_the_weights_changes_the_training_hash_alone(section, name):
    base = BASE
    for where, change in ACTS.get(name, {}).items():
        base = replace(base, **{where: replace(getattr(base, where), **change)})
    other = replace(base, **{section: flipped(getattr(base, section), name)})
    assert hashes(other)[0] != hashes(base)[0]
    assert hashes(other)[1] == hashes(BASE)[1]


@pytest.mark.parametrize("name", names(Evaluation))
def test_evaluation_retrains_nothing(name):
    other = replace(BASE, evaluation=flipped(BASE.evaluation, name))
    assert hashes(other)[0] == hashes(BASE)[0]
    assert hashes(other)[1] != hashes(BASE)[1]


@pytest.mark.parametrize("name", sorted(set(names(Data)) - {"max_len"}))
def test_data_enters_by_its_fingerprints(name):
    other = replace(BASE, data=flipped(BASE.data, name))
    assert hashes(other) == hashes(BASE)
    assert hashes(BASE, train="u")[0] != hashes(BASE)[0]
    assert hashes(BASE, dev="e")[1] != hashes(BASE)[1]


@pytest.mark.parametrize("name", names(Miniature))
def test_a_miniature_is_another_experiment(name):
    assert hashes(replace(BASE, miniature=replace(Miniature(), **{name: 2})))[0] != hashes(BASE)[0]


def test_no_hardware_field_can_reach_a_hash():
    assert {f.type for f in fields(Experiment)} == {Model, Data, Training, Evaluation, Miniature}
    plain = str(training_identity(BASE, "t", {}))
    assert not [n for n in names(Hardware) if f"'{n}'" in plain]


def test_user_classes_enter():
    assert hashes(BASE, classes={"a.B": "1"})[0] != hashes(BASE, classes={"a.B": "2"})[0]


def test_a_miniature_equals_the_same_sizes_spelled_out():
    small = replace(BASE, miniature=Miniature(width=8, depth=2, steps=100))
    model = replace(BASE.model, N=3, d_model=64, d_ff=256, d_k=8, d_v=8)
    assert small.scaled() == replace(BASE, model=model, training=replace(BASE.training, steps=1000))
    assert hashes(small) == hashes(small.scaled())


def test_hashes_survive_a_round_trip_through_plain_data():
    training, evaluation = hashes(BASE)
    assert len(training) == len(evaluation) == 64
    assert hashes(from_dict(Experiment, to_dict(BASE))) == (training, evaluation)


def test_every_field_has_its_own_words():
    from lightning_tfm.cli.arguments import documentation
    from lightning_tfm.queue.clusters import Slurm

    undocumented = [
        f"{cls.__name__}.{f.name}"
        for cls in (Model, Data, Training, Evaluation, Miniature, Hardware, Slurm)
        for f in fields(cls)
        if (cls.__name__, f.name) not in documentation(cls.__module__) and f.name not in NAMED_BY_THEMSELVES
    ]
    assert undocumented == []


NAMED_BY_THEMSELVES = {"beta1", "beta2", "adam_eps", "num_nodes", "accelerator"}


def test_a_whole_number_is_a_fraction_where_one_is_expected():
    assert override(BASE, {"model.P_drop": 0}, "x").model.P_drop == 0.0
    assert isinstance(override(BASE, {"model.P_drop": 0}, "x").model.P_drop, float)


def test_experiments_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BASE.model.h = 3


def test_a_message_lists_the_first_of_many_valid_words():
    """`translate nosuchrun` printed 527 names."""
    assert nearest("zzz", [f"{i:04x}" for i in range(527)]).endswith(", 003b and 467 more")
    assert nearest("zzz", ["a", "b"]) == "valid: a, b"


def test_bleu_carries_its_signature():
    score = bleu(["a b c d e"], ["a b c d e"])
    assert score.value == pytest.approx(100) and "tok:13a" in score.signature
    with pytest.raises(ValueError, match="1 hypotheses for 2"):
        bleu(["a"], ["a", "b"])


def test_chrf():
    def chrf(line: str, reference: str) -> float:
        made = Chrf([reference])
        assert made.score(made([line]).sum(0)) == pytest.approx(made.corpus([line]).value)
        return made.corpus([line]).value

    assert chrf("abc def", "abc def") == pytest.approx(100) and chrf("xyz", "abc") == 0
    # Popović 2015 by hand for "ab" against "ac", order up to 2 that exist: p1 = r1 = 1/2, p2 = r2 = 0 -> F = 25
    assert chrf("ab", "ac") == pytest.approx(25)


@pytest.mark.parametrize(
    ("joined", "label"), [("f1+lightning_tfm.parseval:F1", "F1"), ("tests.test_config:BLEU", "BLEU")]
)
def test_two_columns_of_one_label_are_refused(joined, label):
    with pytest.raises(UserError, match=f"'{joined}': 2 columns would be labelled '{label}'".replace("+", "[+]")):
        Metrics(*METRICS.values()).named(joined)


class BLEU(F1):
    """A user's, labelled as one that every score has."""


def test_tokens_as_the_authors_script_makes_them():
    assert paper_tokens(["Die EU-Länder, 2-3 Mal (z.B. A-B-C) – „so“."], "de") == [
        "Die EU ##AT##-##AT## Länder , 2 ##AT##-##AT## 3 Mal ( z.B. A ##AT##-##AT## B-C ) – „ so “ ."
    ]
    assert paper_tokens(["It's 5 & more - isn't it?"], "en") == ["It &apos;s 5 &amp; more - isn &apos;t it ?"]


def test_the_arithmetic_of_multi_bleu():
    """By hand. Hypotheses 7 + 4 tokens, references 8 + 4; matches 6+4 of 11, 4+3 of 9, 3+2 of 7, 2+1 of 5."""
    hyp = ["the cat sat on the red mat", "a dog ran away"]
    ref = ["the cat sat on the big red hat", "a dog ran away"]
    precisions = [(6 + 4) / 11, (4 + 3) / 9, (3 + 2) / 7, (2 + 1) / 5]
    expected = 100 * math.exp(1 - 12 / 11 + sum(math.log(p) for p in precisions) / 4)
    assert paper_bleu(hyp, ref, "en").value == pytest.approx(expected, abs=1e-9)
    assert paper_bleu(["a b c"], ["a b c"], "en").value == 0  # no 4-gram: multi-bleu does not smooth


def test_splitting_hyphens_raises_the_score_where_compounds_are_half_right():
    hyp, ref = ["die neue EU-Regel gilt für alle heute"], ["die neue EU-Norm gilt für alle heute"]
    assert paper_bleu(hyp, ref, "de").value > bleu(hyp, ref).value
