"""Server optimizers against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.merge.optimizer import adagrad, adam, momentum, nesterov, sgd, yogi


def run(rule, updates, start=0.0):
    """Return the parameter after each update."""
    params, path = np.array([start], np.float32), []
    state = [np.full(1, value, np.float32) for value in rule.initial]
    for update in updates:
        out = np.empty_like(params)
        assert rule.step(params, np.array([update], np.float32), state, out) == -1
        params = out
        path.append(float(params[0]))
    return path


@pytest.mark.parametrize(
    ("rule", "updates", "start", "path"),
    [
        pytest.param(sgd(), [0.5, -2], 1.0, [1.5, -0.5], id="sgd"),
        # v: 1, 2.5
        pytest.param(momentum(0.5, 0.5), [1, 2], 1.0, [1.5, 2.75], id="momentum"),
        # v: 1, 2.5; steps 1 + 0.5, 2 + 1.25
        pytest.param(nesterov(0.5, 0.5), [1, 2], 1.0, [1.75, 3.375], id="nesterov"),
        # v: 1, 25 from tau^2 = 1; m: 0.5, 3.75
        pytest.param(adam(1.0, 0.5, 0.5, 1.0), [1, 7], 0.0, [0.25, 0.875], id="adam"),
        # v: 1 (sign 0), 9 (grows by 16 / 2), 7 (falls by 4 / 2); m: 0.5, 2.25, 2.125
        pytest.param(
            yogi(1.0, 0.5, 0.5, 1.0),
            [1, 4, 2],
            0.0,
            [0.25, 0.8125, 0.8125 + 2.125 / (math.sqrt(7) + 1)],
            id="yogi",
        ),
        # v: 25, 169 from tau^2 = 9
        pytest.param(adagrad(1.0, 0.0, 3.0), [4, 12], 0.0, [0.5, 1.25], id="adagrad"),
        # v: 25, 169; m: 2, 7
        pytest.param(
            adagrad(2.0, 0.5, 3.0), [4, 12], 0.0, [0.5, 0.5 + 14 / 16], id="adagrad with a mean"
        ),
    ],
)
def test_the_published_steps(rule, updates, start, path):
    np.testing.assert_allclose(run(rule, updates, start), path, rtol=1e-6)


def test_nesterov_is_dilocos_outer_step_on_old_minus_new():
    rng = np.random.default_rng(1)
    w = v = 0.0
    updates, path = rng.standard_normal(5), []
    for update in updates:
        gap = -update
        v = 0.9 * v + gap
        w -= 0.7 * (gap + 0.9 * v)
        path.append(w)
    np.testing.assert_allclose(run(nesterov(), updates), path, rtol=1e-5)


def test_lr_1_without_momentum_is_the_plain_step():
    assert run(momentum(1.0, 0.0), [0.5, -2]) == run(sgd(), [0.5, -2])


@pytest.mark.parametrize("rule", [sgd(), momentum(), nesterov(), adam(), yogi(), adagrad()])
def test_the_first_value_that_is_not_finite_is_found(rule):
    state = [np.full(4, value, np.float32) for value in rule.initial]
    update = np.array([0, 1, np.inf, np.nan], np.float32)
    out = np.empty(4, np.float32)
    assert rule.step(np.zeros(4, np.float32), update, state, out) == 2


@pytest.mark.parametrize("rule", [adam(), yogi(), adagrad()])
def test_a_second_moment_that_overflows_is_found_though_the_parameters_are_finite(rule):
    state = [np.full(3, value, np.float32) for value in rule.initial]
    out = np.empty(3, np.float32)
    update = np.array([0, 1e30, 0], np.float32)
    assert rule.step(np.zeros(3, np.float32), update, state, out) == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: momentum(0), "momentum's lr is 0, it must be finite and > 0"),
        (lambda: momentum(math.inf), "momentum's lr is inf"),
        (lambda: nesterov(0.7, 1), r"nesterov's beta is 1, it must be in \[0, 1\)"),
        (lambda: momentum(1, -0.1), "momentum's beta is -0.1"),
        (lambda: adam(-1), "adam's lr is -1"),
        (lambda: adam(1, 0.9, 1.0), r"adam's beta2 is 1.0, it must be in \[0, 1\)"),
        (lambda: yogi(1, 2.0), "yogi's beta1 is 2.0"),
        (lambda: yogi(1, 0.9, -1), "yogi's beta2 is -1"),
        (lambda: adagrad(0.1, 0.0, 0.0), "adagrad's tau is 0.0, it must be finite and > 0"),
        (lambda: adagrad(True), "adagrad's lr is True"),
    ],
)
def test_what_cannot_be_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
