"""Weight rules against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import PushView
from aiops.policy.learning_rate import linear_scaling
from aiops.policy.weight import (
    by_data,
    by_samples,
    by_staleness,
    by_steps,
    constant,
    hinge,
    normalized,
    product,
    uniform,
)


def pushes(samples=(), steps=(), staleness=(), data=()):
    n = max(len(samples), len(steps), len(staleness), len(data))
    samples, steps, staleness = samples or [1] * n, steps or [1] * n, staleness or [0] * n
    return [
        PushView(
            worker=i,
            base=0,
            staleness=staleness[i],
            n_samples=samples[i],
            n_steps=steps[i],
            loss=math.nan,
            arrived=0.0,
            n_data=data[i] if data else 0,
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("rule", "views", "weights"),
    [
        pytest.param(uniform(), pushes([1, 5, 9]), [1 / 3, 1 / 3, 1 / 3], id="plain mean"),
        pytest.param(by_samples(), pushes([1, 3, 4]), [0.125, 0.375, 0.5], id="shares of samples"),
        pytest.param(by_samples(), pushes([0, 5]), [0.0, 1.0], id="no sample weighs nothing"),
        pytest.param(by_samples(), pushes([0, 0]), [0.0, 0.0], id="no sample at all: all zero"),
        # ScaDLES: r_i = b_i / sum b of what the streams brought in a second, one of which has stopped.
        pytest.param(
            by_samples(), pushes([50, 38, 12, 0]), [0.5, 0.38, 0.12, 0.0], id="unequal streams"
        ),
        pytest.param(
            by_data(), pushes([9, 1], data=[100, 300]), [0.25, 0.75], id="shares of the data"
        ),
        # p = 1/4, 3/4; tau = (1*2 + 3*4) / 4 = 3.5; w = 0.25 * 3.5/2, 0.75 * 3.5/4.
        pytest.param(
            by_steps(by_data()),
            pushes([64, 128], steps=[2, 4], data=[100, 300]),
            [0.4375, 0.65625],
            id="fednova by data",
        ),
        # tau = (1 + 2 + 5) / 3 = 8/3, each third of it divided by its own steps.
        pytest.param(by_steps(), pushes(steps=[1, 2, 5]), [8 / 9, 4 / 9, 8 / 45], id="fednova"),
        pytest.param(by_steps(), pushes(steps=[4, 4]), [0.5, 0.5], id="equal steps: plain mean"),
        # p = 1, 3 of P = 4; tau = (1*2 + 3*4) / 4 = 3.5; w = 0.25 * 3.5/2, 0.75 * 3.5/4.
        pytest.param(
            by_steps(by_samples()),
            pushes(samples=[1, 3], steps=[2, 4]),
            [0.4375, 0.65625],
            id="fednova by samples",
        ),
        # The idle worker's third counts 0 steps: tau = (3 + 6) / 3 = 3.
        pytest.param(by_steps(), pushes(steps=[0, 3, 6]), [0.0, 1 / 3, 1 / 6], id="an idle worker"),
        pytest.param(by_steps(), pushes(steps=[0, 0]), [0.0, 0.0], id="nobody made a step"),
        pytest.param(
            by_steps(by_samples()), pushes([0, 0], [1, 2]), [0.0, 0.0], id="all shares zero"
        ),
        # ScaDLES' eta sum(b) / B: 200 samples where 100 are meant; then all there is of warm-up, at version 7 of 10.
        pytest.param(
            product(by_samples(), linear_scaling(100, warmup=0)),
            pushes([50, 150]),
            [0.5, 1.5],
            id="a learning rate that follows the samples",
        ),
        pytest.param(
            linear_scaling(100, 3, warmup=10),
            pushes([900, 100], staleness=[7, 2]),
            [1 + 2 * 0.7] * 2,
            id="its cap and warm-up",
        ),
        pytest.param(linear_scaling(100), pushes([0, 0]), [0.0, 0.0], id="no samples, no step"),
        # Shares that do not sum to 1 are scaled: P = 2 here.
        pytest.param(
            by_steps(constant()), pushes(steps=[1, 3]), [1.0, 1 / 3], id="shares sum to P"
        ),
        pytest.param(constant(), pushes(staleness=[0, 7]), [1.0, 1.0], id="constant"),
        pytest.param(constant(0.6), pushes(staleness=[0, 7]), [0.6, 0.6], id="alpha"),
        pytest.param(
            product(constant(0.6), by_staleness(0.5)),
            pushes(staleness=[0, 3]),
            [0.6, 0.3],
            id="alpha times polynomial",
        ),
        pytest.param(
            by_staleness(), pushes(staleness=[0, 3, 8]), [1.0, 0.5, 1 / 3], id="polynomial 0.5"
        ),
        pytest.param(
            by_staleness(1), pushes(staleness=[0, 1, 4]), [1.0, 0.5, 0.2], id="polynomial 1"
        ),
        pytest.param(by_staleness(0), pushes(staleness=[0, 9]), [1.0, 1.0], id="polynomial 0"),
        # 1 / (10 * (5 - 4) + 1), 1 / (10 * (8 - 4) + 1): continuous at b.
        pytest.param(
            hinge(), pushes(staleness=[0, 4, 5, 8]), [1.0, 1.0, 1 / 11, 1 / 41], id="hinge 10, 4"
        ),
        pytest.param(
            hinge(0.5, 2), pushes(staleness=[2, 3, 4]), [1.0, 1 / 1.5, 0.5], id="hinge 0.5, 2"
        ),
        pytest.param(hinge(0, 0), pushes(staleness=[0, 9]), [1.0, 1.0], id="hinge 0 is constant"),
        pytest.param(
            product(by_samples(), by_staleness(0.5)),
            pushes(samples=[1, 3], staleness=[0, 3]),
            [0.25, 0.375],
            id="share times factor",
        ),
        pytest.param(product(by_samples()), pushes([1, 3]), [0.25, 0.75], id="product of one"),
        pytest.param(
            product(by_samples(), by_staleness(1), constant(), hinge(1, 1)),
            pushes(samples=[1, 3], staleness=[1, 2]),
            [0.125, 0.125],
            id="product of four",
        ),
        pytest.param(
            normalized(by_staleness(1)), pushes(staleness=[0, 1, 1]), [0.5, 0.25, 0.25], id="scaled"
        ),
        pytest.param(
            normalized(product(by_samples(), by_staleness(0.5))),
            pushes(samples=[1, 3], staleness=[0, 3]),
            [0.4, 0.6],
            id="scaled product",
        ),
        pytest.param(
            normalized(by_samples()), pushes([0, 0]), [0.0, 0.0], id="all zero stays all zero"
        ),
    ],
)
def test_weights(rule, views, weights):
    assert list(rule(views)) == pytest.approx(weights, rel=1e-15)


# What a push weighs by itself, and the factor that makes the weights above of it.
@pytest.mark.parametrize(
    ("rule", "views", "raw", "scale"),
    [
        pytest.param(uniform(), pushes([1, 5, 9]), [1, 1, 1], 1 / 3, id="plain mean"),
        pytest.param(by_samples(), pushes([1, 3, 4]), [1, 3, 4], 1 / 8, id="shares of samples"),
        # tau = 8/3 over R = 3 shares.
        pytest.param(by_steps(), pushes(steps=[1, 2, 5]), [1, 0.5, 0.2], 8 / 9, id="fednova"),
        pytest.param(
            by_steps(), pushes(steps=[0, 3, 6]), [0, 1 / 3, 1 / 6], 1, id="an idle worker"
        ),
        # tau = (1*2 + 3*4) / 4 = 3.5 over R = 4 samples.
        pytest.param(
            by_steps(by_samples()),
            pushes(samples=[1, 3], steps=[2, 4]),
            [0.5, 0.75],
            0.875,
            id="fednova by samples",
        ),
        pytest.param(constant(), pushes(staleness=[0, 7]), [1, 1], 1, id="constant"),
        pytest.param(by_staleness(1), pushes(staleness=[0, 3]), [1, 0.25], 1, id="polynomial"),
        pytest.param(hinge(1, 2), pushes(staleness=[2, 3]), [1, 0.5], 1, id="hinge"),
        pytest.param(
            product(by_samples(), by_staleness(1)),
            pushes(samples=[1, 3], staleness=[1, 2]),
            [0.5, 1],
            0.25,
            id="share times factor",
        ),
        pytest.param(
            normalized(product(by_samples(), by_staleness(1))),
            pushes(samples=[1, 3], staleness=[1, 2]),
            [0.5, 1],
            1 / 1.5,
            id="scaled product",
        ),
        pytest.param(by_samples(), pushes([0, 0]), [0, 0], 0, id="no sample at all"),
    ],
)
def test_raw_weights_and_their_scale(rule, views, raw, scale):
    assert [rule.raw(view) for view in views] == pytest.approx(raw, rel=1e-15)
    assert rule.scale(views) == pytest.approx(scale, rel=1e-15)


def test_fednova_counts_every_step_alike():
    # With plain SGD an update is about M_i steps long, so w_i * M_i must be the share times one common length.
    views = pushes(samples=[2, 3, 5], steps=[1, 10, 100])
    tau = 0.2 * 1 + 0.3 * 10 + 0.5 * 100
    effect = [
        w * push.n_steps for w, push in zip(by_steps(by_samples())(views), views, strict=True)
    ]
    assert effect == pytest.approx([0.2 * tau, 0.3 * tau, 0.5 * tau], rel=1e-15)


def test_huge_counts_do_not_overflow():
    views = pushes(samples=[2**63, 2**63], steps=[2**63, 1])
    assert list(by_samples()(views)) == [0.5, 0.5]
    assert all(math.isfinite(w) for w in by_steps(by_samples())(views))


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, True, "1"])
def test_exponents_are_finite_and_not_negative(bad):
    with pytest.raises(ConfigError, match=r"by_staleness's a is .* must be a finite number >= 0"):
        by_staleness(bad)
    with pytest.raises(ConfigError, match=r"hinge's a is .* must be a finite number >= 0"):
        hinge(bad, 4)
    with pytest.raises(ConfigError, match=r"hinge's b is .* must be a finite number >= 0"):
        hinge(10, bad)


@pytest.mark.parametrize("bad", [0, -0.1, 1.5, math.nan, True, "1"])
def test_a_constant_weight_is_above_0_and_at_most_1(bad):
    with pytest.raises(ConfigError, match=r"constant's value is .*, it must be in \(0, 1\]"):
        constant(bad)


def test_a_product_has_factors():
    with pytest.raises(ConfigError, match="product has 0 rules, it needs at least 1"):
        product()
