"""What every numeric rule promises: a frozen value that its own name makes again."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from aiops.merge.aggregation import krum, mean, median, trimmed_mean
from aiops.merge.base import Selection
from aiops.merge.compensation import dcasgd, dcasgd_adaptive, mixing
from aiops.merge.optimizer import adagrad, adam, momentum, nesterov, sgd, yogi
from aiops.merge.table import AGGREGATION, COMPENSATION, OPTIMIZER
from aiops.policy.table import build

AGGREGATIONS = [mean(), median(), trimmed_mean(0.1), krum(1), krum(2, 3)]
OPTIMIZERS = [sgd(), momentum(), nesterov(), momentum(1.0, 0.5), adam(), yogi(), adagrad()]
COMPENSATIONS = [mixing(), dcasgd(0.04, 0.1), dcasgd_adaptive(2.0, 0.95, 0.1)]
ALL = [("aggregation", AGGREGATION, rule) for rule in AGGREGATIONS] + [
    ("optimizer", OPTIMIZER, rule) for rule in OPTIMIZERS
]
ALL += [("compensation", COMPENSATION, rule) for rule in COMPENSATIONS]


@pytest.mark.parametrize(("kind", "table", "rule"), ALL, ids=[rule.name for _, _, rule in ALL])
def test_a_rule_is_a_frozen_value_that_its_name_makes(kind, table, rule):
    assert build(kind, rule.name, table) == rule
    assert pickle.loads(pickle.dumps(rule)) == copy.deepcopy(rule) == rule
    assert hash(rule) == hash(copy.deepcopy(rule))
    with pytest.raises((FrozenInstanceError, TypeError)):
        rule.other = 1


@pytest.mark.parametrize("rule", AGGREGATIONS, ids=lambda rule: rule.name)
def test_pushes_are_left_as_they_are_and_only_a_selection_compares(rule):
    updates = [np.arange(9, dtype=np.float32) * i for i in range(7)]
    before = [update.copy() for update in updates]
    rule.combine(updates, [1 / 7] * 7, np.empty(9, np.float32))
    if isinstance(rule, Selection):
        assert rule.compare(updates).shape == (7, 7)
        assert sum(rule.select(rule.compare(updates))) == pytest.approx(1.0)
    assert isinstance(rule, Selection) == rule.name.startswith("krum")
    np.testing.assert_array_equal(updates, before)


def test_no_compensation_is_none():
    assert build("compensation", "none", COMPENSATION) is None


@pytest.mark.parametrize("rule", COMPENSATIONS, ids=lambda rule: rule.name)
def test_a_push_from_the_present_parameters_needs_no_correction(rule):
    rng = np.random.default_rng(2)
    params, update = rng.standard_normal((2, 9)).astype(np.float32)
    before = params.copy(), update.copy()
    state = [np.full(9, value, np.float32) for value in rule.initial]
    out = np.empty(9, np.float32)
    assert rule.correct(update, params, params.copy(), state, out) == -1
    np.testing.assert_allclose(out, update, rtol=1e-6)
    np.testing.assert_array_equal((params, update), before)


@pytest.mark.parametrize("rule", OPTIMIZERS, ids=lambda rule: rule.name)
def test_a_step_changes_its_state_and_its_output_alone(rule):
    params, update = np.ones(9, np.float32), np.arange(9, dtype=np.float32)
    state = [np.full(9, value, np.float32) for value in rule.initial]
    out = np.empty(9, np.float32)
    rule.step(params, update, state, out)
    assert params.tolist() == [1] * 9
    assert update.tolist() == list(range(9))
    # Nothing comes of nothing, and what points up leads up.
    assert out[0] == 1
    assert (out[1:] > 1).all()
