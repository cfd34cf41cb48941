"""How often the report is wrong: a small version of benchmarks/verdicts.py, held to its bounds."""

import numpy as np
import pytest

from benchmarks import effects, words
from benchmarks.verdicts import (
    EXCEPTION,
    FAMILIES,
    FEW,
    KINDS,
    SETTINGS,
    bound,
    chunks,
    false_to_reference,
    looks,
    miniature_sds,
    one_look,
    planted_effects,
    row_names,
)
from lightning_tfm.report.sequential import HOPELESS
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.sequential import late, linear

N = 600
PLAN = late(5, 8)
AUTO = pytest.param("auto", marks=pytest.mark.long)


def false(kind, rows, how, plan=PLAN):
    """Of each family: whether each of N studies without a difference holds a false verdict."""
    names = row_names(rows)
    found = []
    for some in chunks(11, N, rows, plan.budget if how == "auto" else how, kind, True, miniature_sds()):
        found.append(looks(some, plan, names) if how == "auto" else one_look(some, how, names))
    return {name: np.concatenate([one.any[name] for one in found]) for name in FAMILIES}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != EXCEPTION])
@pytest.mark.parametrize("how", [3, AUTO])
def test_any_false_verdict_in_at_most_five_of_a_hundred_studies(kind, how):
    for name, hits in false(kind, len(FEW), how).items():
        assert bound(hits)[0] <= ALPHA, f"{name}: {100 * hits.mean():.1f} %"


@pytest.mark.parametrize("how", [3, AUTO])
def test_with_all_rows_of_the_paper(how):
    for name, hits in false("measured", 19, how).items():
        assert bound(hits)[0] <= ALPHA, f"{name}: {100 * hits.mean():.1f} %"


def test_a_base_three_times_noisier_than_every_row_is_the_exception():
    found = false(EXCEPTION, len(FEW), 3)
    assert max(hits.mean() for hits in found.values()) < 0.09
    assert bound(found["claims"])[0] <= ALPHA


def test_the_bound_would_notice(monkeypatch):
    monkeypatch.setattr(statistics, "CAUTION", -10.0)  # rows taken for alike that are not
    assert bound(false("factor 30", len(FEW), 3)["BH ppl"])[0] > ALPHA


@pytest.mark.parametrize(
    "kind", ["measured", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("t3", "correlated"))]
)
def test_against_a_row_that_was_named_beforehand_as_against_base_but_not_against_the_best(kind):
    for name, hits in false_to_reference(N, len(FEW), 3, kind, miniature_sds(), False).items():
        assert bound(hits)[0] <= ALPHA, f"{name}: {100 * hits.mean():.1f} %"
    if kind == "measured":
        chosen = false_to_reference(N, 19, 3, kind, miniature_sds(), True)["BH ppl"]
        assert bound(chosen)[0] > ALPHA, "which is why the report warns of it"


def test_of_what_is_found_in_studies_with_real_effects_one_in_twenty_is_false_at_most():
    for kind in ("measured", "equal"):
        rng, shares = np.random.default_rng(12), []
        for some in chunks(12, N, len(FEW), PLAN.budget, kind, True, miniature_sds()):
            effect = planted_effects(rng, some) * miniature_sds()[:, :1]
            bh = looks(some.plus(effect), PLAN, row_names(len(FEW))).bh[:, 0]
            shares += ((bh & (effect[:, 0] == 0)).sum(-1) / np.maximum(bh.sum(-1), 1)).tolist()
        assert np.mean(shares) < ALPHA + 2 * np.std(shares) / np.sqrt(N)


@pytest.mark.long
def test_late_looks_find_more_with_fewer_seeds_than_a_look_at_every_seed_did():
    names, counts, spent = row_names(19), [], []
    for plan, hopeless in ((late(3, 8), HOPELESS), (linear(3, 8), 0.0)):
        rng = np.random.default_rng(13)
        (some,) = chunks(13, 100, 19, 8, "measured", True, miniature_sds())
        found = looks(some.plus(planted_effects(rng, some) * miniature_sds()[:, :1]), plan, names, hopeless)
        counts.append(found.bh[:, 0].sum(-1).mean())
        spent.append(found.spent)
    assert counts[0] > counts[1] + 0.3 and spent[0] < spent[1]


@pytest.mark.parametrize("setting", SETTINGS, ids=[name for name, *_ in SETTINGS])
def test_words_are_true_nearly_always(setting):
    _, *how = setting
    found = words.simulate(40, *how, miniature_sds())
    for word in Verdict:
        said, false = found.times(word)
        assert false <= max(3, 0.08 * said), f"{word}: {false} of {said}"
    assert (
        found.times(Verdict.REPRODUCED)[0] > 10 and found.times(Verdict.SAME_DIRECTION)[0] > 100
    )  # some are said at all
    if how[-1]:
        assert found.times(Verdict.SMALLER)[0] > 10 and found.times(Verdict.NEITHER)[0] > 40
    else:
        assert found.times(Verdict.SMALLER)[0] == 0


@pytest.mark.parametrize(("levels", "studies", "most"), [((2, 2), 400, 36), ((3, 2, 2), 300, 22)])
def test_effects_of_a_grid_without_any_are_seldom_found(levels, studies, most):
    """The simulation of benchmarks/effects.py; of 400 studies 5 % would be 20, and 22 of 300 is two errors above it."""
    rng = np.random.default_rng(3)
    found = [effects.false_effects(rng, effects.KINDS[0], levels) for _ in range(studies)]
    main, interaction = np.sum(found, axis=0)
    assert 0 < main <= most and interaction <= most
