"""Compensations against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.merge.compensation import dcasgd, dcasgd_adaptive, mixing


def corrected(rule, steps):
    """Return what becomes of each (update, parameter, base), one after the other."""
    state = [np.full(1, value, np.float32) for value in rule.initial]
    path = []
    for numbers in steps:
        out = np.empty(1, np.float32)
        vectors = [np.array([number], np.float32) for number in numbers]
        assert rule.correct(*vectors, state, out) == -1
        path.append(float(out[0]))
    return path


@pytest.mark.parametrize(
    ("rule", "steps", "expected"),
    [
        # x = 3 and w = 5: w + 0.6 * -2 = 3.8 = 0.4 * 5 + 0.6 * 3
        pytest.param(mixing(), [(1, 5, 2), (1, 2, 5)], [-2, 4], id="mixing"),
        # g = 2, -1; g + 0.5 * g * g * (w - base) = 2 + 6, -1 - 2; times -lr
        pytest.param(dcasgd(0.5, 0.25), [(-0.5, 4, 1), (0.25, 1, 5)], [-2, 0.75], id="dcasgd"),
        # g = 4, 2; MS = 0.25 * 16 = 4, 3 + 1 = 4; lambda = 2 / 2; 4 + 16 * 0.5, 2 + 4 * 1; times -lr
        pytest.param(
            dcasgd_adaptive(2.0, 0.75, 0.5), [(-2, 1, 0.5), (-1, 3, 2)], [-6, -3], id="adaptive"
        ),
    ],
)
def test_the_published_rules(rule, steps, expected):
    np.testing.assert_allclose(corrected(rule, steps), expected, rtol=1e-6)


def test_an_adaptive_lambda_without_any_gradient_does_not_divide_by_zero():
    assert corrected(dcasgd_adaptive(2.0, 0.95, 0.1), [(0, 1, 5)]) == [0]


def test_a_mean_square_that_overflows_is_found():
    rule = dcasgd_adaptive(2.0, 0.95, 0.1)
    out, state = np.empty(3, np.float32), [np.zeros(3, np.float32)]
    update = np.array([0, 1e25, 0], np.float32)
    with np.errstate(all="ignore"):
        position = rule.correct(update, np.ones(3, np.float32), np.ones(3, np.float32), state, out)
    assert position == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dcasgd(0, 0.1), "dcasgd's lam is 0, it must be finite and > 0"),
        (lambda: dcasgd(0.04, -0.1), "dcasgd's lr is -0.1"),
        (lambda: dcasgd_adaptive(math.nan, 0.95, 0.1), "dcasgd_adaptive's lam is nan"),
        (lambda: dcasgd_adaptive(2, 1, 0.1), r"decay is 1, it must be in \[0, 1\)"),
        (lambda: dcasgd_adaptive(2, 0.95, True), "dcasgd_adaptive's lr is True"),
    ],
)
def test_what_cannot_be_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
