"""ScaDLES' rule and its vote, step by step."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.density import Adaptive, Fixed
from aiops.policy.exchange import Exchange, Load, Network, Seen, VotingJudge
from aiops.policy.gravac import Gravac
from aiops.policy.scadles import Scadles, scadles
from tests.policy.kit import spectrum

NAMES = ("artopk_ring", "allgather_ring", "dense_ring")
DENSE = Exchange("dense_ring")


def judged(ranks=4, names=NAMES, **settings):
    return Scadles(**settings).judge(Load(1_000_000, ranks), names)


# A gain of density**power: the loss at a tenth is 1 - 10**-power.
def power(loss):
    return -math.log10(1 - loss)


def seen(step, exchange, votes, network=None):
    return Seen(step, exchange, network, 0.0, 1.0, votes)


@pytest.mark.parametrize(("loss", "vote"), [(0.1, True), (0.29, True), (0.31, False), (0.9, False)])
def test_a_rank_is_for_it_where_it_loses_little(loss, vote):
    judge = judged()
    assert judge.vote(spectrum(power(loss))) is vote
    assert judge.loss == pytest.approx(loss, abs=1e-6)


def test_the_loss_is_smoothed():
    judge = judged(newest=0.25)
    losses = [0.1, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1]
    # .1, .3, .45, .3625, .296875: up at once by a quarter of the way, and down likewise.
    votes = [judge.vote(spectrum(power(loss))) for loss in losses]
    assert votes == [True, True, False, False, True, True, True]


def test_the_density_decides_what_is_lost():
    # A gain of c**.25: .562 of a tenth, .84 of a half.
    assert not judged().vote(spectrum(0.25))
    assert judged(density=0.5).vote(spectrum(0.25))


@pytest.mark.parametrize("total", [0.0, math.nan, math.inf])
def test_a_gradient_that_is_no_measure_leaves_the_vote_as_it_was(total):
    judge = judged()
    assert not judge.vote(spectrum(0.01, total))
    judge.vote(spectrum(0.01))
    assert judge.vote(spectrum(0.01, total))


@pytest.mark.parametrize(
    ("ranks", "votes", "compresses"),
    [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True), (3, 1, False), (3, 2, True), (4, 2, False),
     (4, 3, True)],
)  # fmt: skip
def test_more_than_half_decide(ranks, votes, compresses):
    judge = judged(ranks)
    assert judge.first == DENSE
    assert judge.observe(seen(1, DENSE, votes)) is compresses
    plan = judge.decide(spectrum())
    if compresses:
        assert plan.exchange == Exchange("allgather_ring", 0.1)
        assert plan.reason == f"{votes} of {ranks} ranks lose at most 0.3 of the energy"
    else:
        assert plan is None


def test_a_change_is_told_once_and_taken_back_likewise():
    judge, sparse = judged(), Exchange("allgather_ring", 0.1)
    assert judge.observe(seen(1, DENSE, 4))
    assert judge.decide(spectrum()).exchange == sparse
    # The step in which it was told was still the old one.
    assert not judge.observe(seen(2, DENSE, 4))
    assert not judge.observe(seen(3, sparse, 4))
    assert judge.observe(seen(4, sparse, 0))
    assert judge.decide(spectrum()).exchange == DENSE


def test_a_change_of_mind_before_it_begins_is_told():
    judge = judged()
    judge.observe(seen(1, DENSE, 4))
    judge.decide(spectrum())
    assert judge.observe(seen(2, DENSE, 0))
    assert judge.decide(spectrum()).exchange == DENSE


def test_a_change_that_a_refused_step_did_not_tell_is_told_later():
    judge = judged()
    judge.observe(seen(1, DENSE, 4))
    judge.decide(spectrum())
    # The step in which it was told came to nothing, and was done again without it.
    assert not judge.observe(seen(2, DENSE, 4))
    assert judge.observe(seen(3, DENSE, 4))
    assert judge.decide(spectrum()).exchange == Exchange("allgather_ring", 0.1)


def test_the_collective_is_the_cheapest_at_the_density():
    judge = judged(8)
    judge.observe(seen(1, DENSE, 8, Network(1e-3, 1e-8)))
    assert judge.decide(spectrum()).exchange == Exchange("artopk_ring", 0.1)


def test_it_compresses_also_where_that_does_not_pay():
    # A gather among eight takes 7 * 8 bytes a value, so 22.4 MB at this density where a dense sum takes 7.
    judge = judged(8, names=["allgather_ring", "dense_ring"], density=0.4)
    judge.observe(seen(1, DENSE, 8, Network(1e-3, 1e-8)))
    assert judge.decide(spectrum()).exchange == Exchange("allgather_ring", 0.4)


def test_without_a_dense_collective_everything_is_density_1():
    judge = judged(names=["artopk_tree"])
    assert judge.first == Exchange("artopk_tree", 1.0)
    assert not judge.probes
    judge.observe(seen(1, judge.first, 4))
    assert judge.decide(spectrum()).exchange == Exchange("artopk_tree", 0.1)
    assert judge.observe(seen(2, Exchange("artopk_tree", 0.1), 0))
    assert judge.decide(spectrum()).exchange == Exchange("artopk_tree", 1.0)


def test_links_are_measured_where_there_is_a_choice():
    assert judged().probes
    assert judged(names=["artopk_ring", "dense_ring", "dense_tree"]).probes
    assert not judged(names=["artopk_ring", "dense_ring"]).probes


def test_only_it_votes():
    load = Load(1000, 4)
    assert isinstance(judged(), VotingJudge)
    for policy in (Fixed(0.1), Adaptive(), Gravac()):
        assert not isinstance(policy.judge(load, NAMES), VotingJudge)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Scadles(0), r"scadles's density is 0, it must be in \(0, 1\)"),
        (lambda: Scadles(1.0), r"scadles's density is 1.0, it must be in"),
        (lambda: Scadles(delta=1.5), r"scadles's delta is 1.5, it must be in \[0, 1\]"),
        (lambda: Scadles(newest=0), r"scadles's newest is 0, it must be in \(0, 1\]"),
        (lambda: judged(names=["dense_ring"]), "scadles has dense_ring to choose from"),
        (lambda: judged(names=["dens"]), "unknown collective 'dens'"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_the_name_of_the_command_line():
    assert scadles() == Scadles(0.1, 0.3)
    assert scadles(0.01, 0.2, 1) == Scadles(0.01, 0.2, 1)
