"""What counts as a number in settings."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.number import check_density, check_positive, check_share, is_count, is_real


@pytest.mark.parametrize("value", [0, -3, 2.5, 1e300])
def test_a_finite_number_is_real(value):
    assert is_real(value)


@pytest.mark.parametrize("value", [True, False, "1", None, math.nan, math.inf])
def test_what_is_no_finite_number(value):
    assert not is_real(value)


def test_a_count_is_whole_and_large_enough():
    assert is_count(0)
    assert is_count(3, 3)
    assert not any(is_count(value) for value in (-1, 1.0, True, "1", None))
    assert not is_count(2, 3)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, True, "1"])
def test_what_is_not_positive_is_refused(value):
    check_positive("rate", 0.1)
    with pytest.raises(ConfigError, match=r"^rate is .*, it must be finite and > 0$"):
        check_positive("rate", value)


@pytest.mark.parametrize("value", [1, -0.1, math.nan, True, None])
def test_what_is_no_share_is_refused(value):
    check_share("beta", 0)
    with pytest.raises(ConfigError, match=r"^beta is .*, it must be in \[0, 1\)$"):
        check_share("beta", value)


@pytest.mark.parametrize("value", [0, -0.1, 1.001, math.nan, True, "0.1", None])
def test_what_is_no_density_is_refused(value):
    check_density("low", 1)
    check_density("low", 1e-6)
    with pytest.raises(ConfigError, match=r"^low is .*, it must be in \(0, 1\]$"):
        check_density("low", value)
