"""Rounds by rules, from the push to the next version, on the in-memory cluster."""

import asyncio

import numpy as np
import pytest

from aiops.config import ServerConfig
from aiops.errors import ConfigError, Refused
from aiops.merge.aggregation import krum, median, trimmed_mean
from aiops.merge.optimizer import adam, nesterov
from aiops.policy.weight import by_samples, uniform
from tests.server.kit import MANY, ONES, cluster, count, value

pytestmark = pytest.mark.virtual

KRUM = {"aggregation": "krum:1,2", "min_workers": 5}


async def pushed(hands, sequence, values, *, base, n=4):
    """Push a constant from each hand; return the answers."""
    for hand, number in zip(hands, values, strict=True):
        await hand.send_push(sequence, np.full(n, number, np.float32), base=base)
    return [(await hand.events.get()).body for hand in hands]


def test_rules_are_parsed_and_robust_ones_weigh_the_same_unless_told_otherwise():
    config = ServerConfig.parse(aggregation="krum:1,2", min_workers=5, optimizer="nesterov:0.7,0.9")
    assert (config.aggregation, config.weights) == (krum(1, 2), uniform())
    assert config.optimizer == nesterov(0.7, 0.9)
    assert ServerConfig.parse(aggregation=median(), optimizer=adam()).rules is not None
    assert ServerConfig.parse(aggregation="trimmed_mean:0.1").aggregation == trimmed_mean(0.1)
    plain = ServerConfig.parse(aggregation="mean", optimizer="sgd")
    assert (plain.weights, plain.rules) == (by_samples(), None)
    assert plain == ServerConfig()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"aggregation": "mode"}, "unknown aggregation 'mode', known are mean, median"),
        ({"aggregation": "krum"}, "aggregation 'krum' does not fit its arguments"),
        ({"aggregation": "multi-krum:1,2"}, "did you mean 'krum'"),
        ({"aggregation": "median", "weights": "by_samples"}, "use weights uniform"),
        ({"aggregation": "median", "sync": "ssp:2"}, "use sync bulk"),
        ({"aggregation": "krum:1"}, "use min_workers 5 or more"),
        ({"aggregation": 3}, "aggregation is 3, it must be a policy object with 'combine'"),
        ({"optimizer": "fedadam"}, "did you mean 'adam'"),
        ({"optimizer": "adam", "server_lr": 0.5}, "has a learning rate of its own"),
        ({"optimizer": "sgd:0.1"}, "optimizer 'sgd:0.1' does not fit its arguments"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(spec, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ServerConfig.parse(**spec)


async def test_krum_outvotes_a_wrong_worker_round_after_round(hand):
    async with cluster(**KRUM) as house:
        hands = [await hand(house) for _ in range(5)]
        # Scores 5, 2, 5, 41 and a great deal: the second and the first.
        answers = await pushed(hands, 1, [0, 1, 2, 6, 1e30], base=0)
        assert [answer.version for answer in answers] == [1] * 5
        assert value(house) == 0.5
        await pushed(hands, 2, [-9e9, 4, 4, 4, 8], base=1)
        assert value(house) == 4.5


async def test_a_round_that_is_too_small_for_krum_is_refused_in_a_sentence(hand):
    async with cluster(**KRUM) as house:
        hands = [await hand(house) for _ in range(5)]
        await pushed(hands, 1, [1] * 5, base=0)
        await hands.pop().leave()
        answers = await pushed(hands, 2, [1] * 4, base=1)
        assert {(answer.code, answer.message) for answer in answers} == {
            (Refused.code, "krum:1,2 takes rounds of at least 5 pushes, this one has 4")
        }
        assert (value(house), house.server.version) == (1.0, 1)
        # With a fifth one again it goes on.
        hands.append(await hand(house))
        await hands[-1].send_push(1, 3 * ONES, base=1)
        await asyncio.sleep(1)
        await pushed(hands[:4], 3, [3] * 4, base=1)
        assert value(house) == 4.0


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("aggregation", ["median", "krum:1,1"])
async def test_large_rounds_are_merged_by_rules_in_the_shards_threads(hand, aggregation, shards):
    spec = {**KRUM, "aggregation": aggregation}
    async with cluster(MANY, shards=shards, bucket_bytes=512 * 1024, **spec) as house:
        buckets = house.server.service.store.table.buckets
        hands = [await hand(house) for _ in range(5)]
        for worker, number in zip(hands, [-50, 1, 2, 3, 50], strict=True):
            await worker.send_push(
                1, *[np.full(b.stop - b.start, number, np.float32) for b in buckets]
            )
        assert {(await worker.events.get()).body.version for worker in hands} == {1}
        assert value(house) == 2.0
        assert count(house, "buckets_drafted") == 0


async def test_server_momentum_carries_a_round_on(hand):
    async with cluster(optimizer="momentum:1,0.5") as house:
        worker = await hand(house)
        for sequence, expected in ((1, 1.0), (2, 2.5), (3, 4.25)):
            await worker.push(sequence, ONES, base=sequence - 1)
            assert value(house) == expected


async def test_a_step_that_would_not_be_finite_refuses_the_round_and_keeps_the_velocity(hand):
    huge = np.full(4, 3e38, np.float32)
    async with cluster(optimizer="momentum:1,0.5") as house:
        worker = await hand(house)
        await worker.push(1, huge)
        answer = await worker.push(2, huge, base=1)
        assert "not finite" in answer.body.message
        assert (value(house), house.server.version) == (huge[0], 1)
        # From a velocity of 3e38, and not of 4.5e38 or 0.
        await worker.push(3, -huge, base=1)
        assert value(house) == pytest.approx(1.5e38)


async def test_nothing_is_drafted_where_a_rule_needs_all_pushes(hand, small_chunks):
    async with cluster(1000, optimizer="nesterov:1,0.5") as house:
        worker = await hand(house)
        await worker.push(1, np.ones(1000, np.float32))
        assert value(house) == 1.5
        bad = np.ones(1000, np.float32)
        bad[700] = np.nan
        answer = await worker.push(2, bad, base=1)
        assert "NaN or infinity in tensor 'w' (value 700 of 1000)" in answer.body.message
        assert count(house, "buckets_drafted") == 0
