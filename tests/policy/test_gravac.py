"""GraVAC's windows, candidates and throughputs, step by step."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.exchange import Exchange, Load, Network, Seen
from aiops.policy.gravac import Gravac, gravac
from tests.policy.kit import spectrum

# With 100 ranks nothing is smoothed: the paper's factor is ranks/100. A gathered tenth is 2 MB, a dense sum 8.
LOAD = Load(1_000_000, 100, index_bytes=0.1, value_bytes=0.1)
NAMES = ("dense_ring", "allgather_ring")
NETWORK = Network(1e-6, 1e-9)


class Job:
    """Steps a judge whose gain at a density is density**power, and does what it says."""

    def __init__(self, policy, load=LOAD, names=NAMES):
        self.judge = policy.judge(load, names)
        self.exchange = self.judge.first
        self.step = 0
        self.reasons = []

    def run(self, steps, power, *, compute_s=0.1, network=NETWORK, total=1.0):
        sent = []
        for _ in range(steps):
            self.step += 1
            gain = self.exchange.density**power
            assert self.judge.observe(Seen(self.step, self.exchange, network, compute_s, gain))
            plan = self.judge.decide(spectrum(power, total))
            if plan is not None:
                assert plan.exchange != self.exchange
                self.exchange = plan.exchange
                self.reasons.append(plan.reason)
            sent.append(self.exchange.density)
        return sent


def test_the_candidates_of_ten_times_compression_are_those_of_the_paper():
    # Throughputs that differ, so that the search goes on to its end: 20, 40, 160 and 1000 times.
    job = Job(Gravac(eps=0.5, window=3))
    assert job.judge.first == Exchange("allgather_ring", 0.1)
    found = [job.judge.candidate]
    while job.judge.searching:
        job.run(1, 0.05, compute_s=1e-3)
        if job.judge.candidate != found[-1]:
            found.append(job.judge.candidate)
    assert found[:4] == [0.05, 0.025, 0.00625, 0.001]
    assert job.step == 12


@pytest.mark.parametrize(
    ("power", "density"),
    [
        # gains .861 and .891
        pytest.param(0.05, 0.05, id="the candidate's gain is enough"),
        # .549 and .631
        pytest.param(0.2, 1.0, id="neither's is"),
        # .688 and .733
        pytest.param(0.125, 0.1, id="only the weaker compression's is"),
    ],
)
def test_a_step_sends_the_least_that_keeps_the_gain(power, density):
    job = Job(Gravac(eps=0.7))
    assert job.run(3, power) == [density] * 3
    assert job.exchange.collective == ("dense_ring" if density == 1.0 else "allgather_ring")
    assert all(reason.endswith("and 0.7 is enough") for reason in job.reasons)


def test_a_plan_says_which_gain_decided():
    job = Job(Gravac(eps=0.7))
    job.run(1, 0.05)
    job.run(1, 0.2)
    assert job.reasons == [
        "density 0.05 has a gain of 0.861, and 0.7 is enough",
        "density 0.1 has a gain of no more than 0.631, and 0.7 is enough",
    ]


def test_a_candidate_as_good_as_the_largest_density_takes_its_place():
    # .9931 and .9962 of the energy are within a hundredth, .978 and .983 too.
    job = Job(Gravac(eps=0.5, window=5))
    job.run(5, 0.001, compute_s=1e-3)
    assert job.judge.largest == 0.05
    assert job.judge.candidate == 0.025
    # .798 is not within a hundredth of .861.
    job = Job(Gravac(eps=0.5, window=5))
    job.run(5, 0.05, compute_s=1e-3)
    assert job.judge.largest == 0.1


def test_two_throughputs_that_are_alike_end_the_search_at_the_weaker():
    # 10 s of computing: gain over time of a step is .993 and .996 of a tenth.
    job = Job(Gravac(eps=0.5, window=4))
    job.run(4, 0.001, compute_s=10.0)
    assert not job.judge.searching
    assert job.judge.candidate == 0.1
    assert job.run(20, 0.001, compute_s=10.0) == [0.1] * 20


def test_after_the_last_candidate_the_best_throughput_stays():
    # 1 ms of computing, 2.1 for a tenth and 0.1 for a thousandth: .93 and .81 of the energy, 300 and 730 a second.
    job = Job(Gravac(eps=0.5, window=3))
    job.run(12, 0.03, compute_s=1e-3)
    assert not job.judge.searching
    assert job.judge.candidate == 0.001
    assert job.run(3, 0.03, compute_s=1e-3) == [0.001] * 3
    # And where the gain is lost, everything is sent again.
    assert job.run(3, 0.6, compute_s=1e-3) == [1.0] * 3


def test_gains_are_smoothed_by_the_ranks():
    # 10 ranks: a tenth of the new value; .861 and .55 mean .7 after 8 steps.
    job = Job(Gravac(eps=0.7), Load(1_000_000, 10, 0.1, 0.1))
    assert job.run(5, 0.05)[-1] == 0.05
    sent = job.run(12, 0.2)
    below = math.ceil(math.log((0.7 - 0.05**0.2) / (0.05**0.05 - 0.05**0.2)) / math.log(0.9))
    assert sent[: below - 1] == [0.05] * (below - 1)
    assert sent[below - 1] != 0.05


def test_without_a_network_the_first_collectives_are_taken():
    job = Job(Gravac(eps=0.7))
    assert job.run(3, 0.05, network=None) == [0.05] * 3
    assert job.exchange == Exchange("allgather_ring", 0.05)
    job.run(1, 0.5, network=None)
    assert job.exchange == Exchange("dense_ring", 1.0)
    job = Job(Gravac(eps=0.7), names=["artopk_tree"])
    job.run(1, 0.5)
    assert job.exchange == Exchange("artopk_tree", 1.0)


@pytest.mark.parametrize("total", [0.0, math.nan, math.inf])
def test_a_gradient_that_is_no_measure_decides_nothing(total):
    job = Job(Gravac())
    assert job.run(3, 0.05, total=total) == [0.1] * 3


def test_a_narrow_range_has_one_candidate():
    judge = Gravac(low=0.06, high=0.1, window=1).judge(LOAD, NAMES)
    assert judge.candidate == 0.06


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Gravac(low=0), r"gravac's low is 0, it must be in \(0, 1\]"),
        (lambda: Gravac(high=1.1), r"gravac's high is 1.1, it must be in \(0, 1\]"),
        (lambda: Gravac(0.2, 0.1), "gravac's low is 0.2, it must be < high = 0.1"),
        (lambda: Gravac(eps=1.0), r"gravac's eps is 1.0, it must be in \[0, 1\)"),
        (lambda: Gravac(window=0), "gravac's window is 0, it must be a whole number >= 1"),
        (lambda: Gravac(omega=-0.1), r"gravac's omega is -0.1, it must be in \[0, 1\)"),
        (lambda: Gravac().judge(LOAD, ["dense_ring"]), "gravac has dense_ring to choose from"),
        (lambda: Gravac().judge(LOAD, ["dens"]), "unknown collective 'dens'"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_the_name_of_the_command_line():
    assert gravac() == Gravac(0.001, 0.1, 0.7, 500, 0.01)
    assert gravac(0.01, 0.2, 0.9, 25, 0.05) == Gravac(0.01, 0.2, 0.9, 25, 0.05)
