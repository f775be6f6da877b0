"""What a rank can be told about its exchange, and what is refused in one sentence."""

import pytest

from aiops.config.exchange import COLLECTIVES, DEFAULT, POSITION_BYTES, VALUE_BYTES, ExchangeConfig
from aiops.errors import ConfigError
from aiops.policy.cost import COSTS
from aiops.policy.density import Adaptive, Fixed
from aiops.policy.exchange import Exchange, Load, Network, Seen


def test_every_collective_has_a_cost():
    assert set(COLLECTIVES) <= set(COSTS)
    assert set(DEFAULT) <= set(COLLECTIVES)


@pytest.mark.parametrize(
    ("density", "meant"),
    [(0.05, Fixed(0.05)), (1, Fixed(1)), ("fixed:0.05", Fixed(0.05)), ("adaptive", Adaptive())],
)
def test_a_density_is_a_number_a_name_or_a_policy(density, meant):
    assert ExchangeConfig.parse(density=density).density == meant
    assert ExchangeConfig.parse(density=meant).density is meant


def test_a_sparse_density_is_sparse_from_the_first_step():
    config = ExchangeConfig.parse(density=0.01)
    first = config.density.judge(Load(1000, 4), config.collectives).first
    assert str(first) == "artopk_ring:0.01"


def test_one_collective_needs_no_list():
    assert ExchangeConfig.parse(collectives="var_ring").collectives == ("var_ring",)


def test_only_one_exchange_leaves_nothing_to_decide_and_all_else_as_it_is():
    told = {"values": "int8", "positions": "rice", "select": "mstopk", "momentum": 0.5, "seed": 3}
    exchange = Exchange("allgather_ring", 0.03)
    config = ExchangeConfig.parse(density="adaptive_trials", **told).only(exchange)
    assert config == ExchangeConfig.parse(
        density=Fixed(0.03, "allgather_ring"), collectives="allgather_ring", **told
    )
    judge = config.density.judge(Load(1000, 4), config.collectives)
    assert judge.first == exchange
    assert not judge.probes
    assert not judge.observe(Seen(1, exchange, Network(1.0, 1.0), 1.0, 0.1))


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"density": 0.0}, "density is 0.0"),
        ({"density": "adapted"}, "unknown density 'adapted'"),
        ({"collectives": ()}, "collectives is empty, it must name at least one"),
        ({"collectives": "ring"}, "unknown collective 'ring'"),
        ({"collectives": ("var_ring", "var_ring")}, "name one twice"),
        ({"values": "fp8"}, "unknown values 'fp8', known are fp32, bf16, fp16, int8"),
        ({"positions": "zip"}, "unknown positions 'zip', known are raw, elias, packed, rice"),
        ({"select": "all"}, "unknown select 'all', known are largest, layerwise, mstopk"),
        ({"momentum": 1.0}, "momentum is 1.0, it must be at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum is -0.1, it must be at least 0 and below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(told, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ExchangeConfig.parse(**told)


@pytest.mark.parametrize("name", [*VALUE_BYTES, *POSITION_BYTES])
def test_the_cost_model_knows_what_codes_take(name):
    assert 0 < (VALUE_BYTES | POSITION_BYTES)[name] <= 4
