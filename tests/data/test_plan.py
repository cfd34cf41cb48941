"""The batch plan: equal shares, every sentence once, the budget kept, one order for every number of devices."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_tfm.data.plan import Plan, padded_tokens, split_evenly
from lightning_tfm.errors import UserError

WORLDS = st.integers(1, 64)


@st.composite
def corpora(draw):
    """Source and target lengths, mostly alike as those of translations are, and a budget that the longest fits into."""
    n = draw(st.integers(1, 120))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.integers(1, 60))
    source = random.integers(1, longest + 1, n)
    target = np.clip(source + random.integers(-3, 4, n), 1, None) if draw(st.booleans()) else random.permutation(source)
    budget = int(max(source.max(), target.max())) * draw(st.integers(1, 12)) + draw(st.integers(0, 30))
    return source, target, budget


def check(corpus, world: int, slack: int, seed: int) -> None:
    source, target, budget = corpus
    plan = Plan(source, target, budget, seed)
    longest = int(max(source.max(), target.max()))
    micro_tokens = longest * slack  # 0 is no limit
    epoch, per = seed % 3, plan.steps_per_epoch
    steps = range(epoch * per, (epoch + 1) * per)
    closer = {steps[seed % per], steps[seed // 3 % per], steps[-1]}
    for step in steps:
        ids = plan.global_batch(step)
        assert plan.step_tokens(step) == (source[ids].sum(), target[ids].sum())
        assert max(plan.step_tokens(step)) <= budget
        if step in closer:
            ranks = [plan.micro_batches(step, rank, world, micro_tokens) for rank in range(world)]
            assert len({len(micro) for micro in ranks}) == 1
            dealt = [part for number in zip(*ranks, strict=True) for part in number]
            assert np.array_equal(np.concatenate(dealt), np.arange(len(ids)))
            assert not slack or max(padded_tokens(source[ids[p]], target[ids[p]]) for p in dealt) <= micro_tokens
    seen = np.concatenate([plan.global_batch(step) for step in steps])
    assert np.array_equal(np.sort(seen), np.arange(len(source)))


SEEDS = st.integers(0, 2**31)
QUIET = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=150, **QUIET)
@given(corpora(), WORLDS, st.integers(0, 3), SEEDS)
def test_what_every_plan_keeps(corpus, world, slack, seed):
    check(corpus, world, slack, seed)


@pytest.mark.long
@settings(max_examples=1000, **QUIET)
@given(corpora(), WORLDS, st.integers(0, 3), SEEDS)
def test_what_every_plan_keeps_on_a_thousand_corpora(corpus, world, slack, seed):
    check(corpus, world, slack, seed)


@pytest.fixture
def plan() -> Plan:
    random = np.random.default_rng(0)
    source = random.integers(1, 40, 3000)
    return Plan(source, np.clip(source + random.integers(-4, 5, 3000), 1, None), 400, 7)


def test_order_does_not_depend_on_the_world(plan):
    """Whatever cuts a step, its pieces put together are the step's sentences in the step's order."""
    for step in (0, 5, plan.steps_per_epoch, 4 * plan.steps_per_epoch + 3):
        n = len(plan.global_batch(step))
        for world, micro_tokens in ((1, 0), (2, 0), (3, 100), (8, 41), (64, 0)):
            ranks = [plan.micro_batches(step, rank, world, micro_tokens) for rank in range(world)]
            dealt = [part for number in zip(*ranks, strict=True) for part in number]
            assert np.array_equal(np.concatenate(dealt), np.arange(n))


def test_steps_are_full_and_sentences_of_like_length(plan):
    fill = [max(plan.step_tokens(step)) for step in range(plan.steps_per_epoch)]
    assert np.mean(fill) > 0.93 * 400
    spread = [np.ptp(plan.target_lengths[plan.global_batch(step)]) for step in range(plan.steps_per_epoch)]
    assert np.mean(spread) < 2


def test_ranks_get_like_shares(plan):
    for step in range(20):
        ids = plan.global_batch(step)
        cost = [
            sum((plan.source_lengths + plan.target_lengths)[ids[p]].sum() for p in plan.micro_batches(step, r, 2, 0))
            for r in range(2)
        ]
        assert abs(cost[0] - cost[1]) <= 2 * 88


def test_every_epoch_and_seed_has_its_own_order(plan):
    per = plan.steps_per_epoch
    first = [plan.global_batch(step).tolist() for step in range(per)]
    second = [plan.global_batch(step).tolist() for step in range(per, 2 * per)]
    other = Plan(plan.source_lengths, plan.target_lengths, plan.tokens, 8)
    assert first != second and not set(map(tuple, first)) & set(map(tuple, second))
    assert other.global_batch(0).tolist() != first[0]
    again = Plan(plan.source_lengths, plan.target_lengths, plan.tokens, 7)
    assert [again.global_batch(step).tolist() for step in reversed(range(per))] == first[::-1]


def test_short_and_long_steps_are_mixed(plan):
    lengths = [plan.target_lengths[plan.global_batch(step)].mean() for step in range(plan.steps_per_epoch)]
    assert abs(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1]) < 0.2


def test_ids_choose_sentences():
    lengths = np.array([3, 100, 4, 5, 100])
    plan = Plan(lengths, lengths, 12, 0, ids=np.array([0, 2, 3]))
    assert sorted(plan.global_batch(0).tolist()) == [0, 2, 3]


def test_more_ranks_than_sentences():
    plan = Plan(np.array([3, 4]), np.array([5, 2]), 50, 0)
    ranks = [plan.micro_batches(0, rank, 5, 0) for rank in range(5)]
    assert [len(micro) for micro in ranks] == [1] * 5
    assert sorted(len(micro[0]) for micro in ranks) == [0, 0, 0, 1, 1]


def test_too_long_for_the_budget_is_an_error():
    with pytest.raises(UserError, match=r"51 tokens.*training\.tokens=50"):
        Plan(np.array([3, 4]), np.array([5, 51]), 50, 0)


def test_too_long_for_a_micro_batch_is_an_error():
    with pytest.raises(UserError, match=r"12 tokens.*trainer\.micro_tokens=11"):
        split_evenly(np.array([3, 12]), np.array([4, 5]), 2, 11)
    assert len(split_evenly(np.array([3, 12]), np.array([4, 5]), 2, 12)) == 2


def test_nothing_left_is_an_error():
    with pytest.raises(UserError, match=r"data\.max_len"):
        Plan(np.array([3]), np.array([5]), 50, 0, ids=np.array([], dtype=int))


def test_orders_are_the_same_everywhere():
    """Committed: another version of NumPy or another machine must take these sentences."""
    plan = Plan(np.arange(1, 13), np.arange(12, 0, -1), 26, 3)
    assert [plan.global_batch(step).tolist() for step in range(plan.steps_per_epoch)] == [
        [3, 2],
        [9, 8],
        [1, 0],
        [7, 6, 5, 4],
        [11, 10],
    ]
