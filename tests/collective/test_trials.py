"""Trials over Gloo, in real processes: what they measure, and that a training goes on as if there had been none."""

import copy
import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from aiops.collective.hook import artopk_hook, reduce_gradients
from aiops.collective.randomness import RandomState
from aiops.collective.rewind import Rewind
from aiops.collective.state import ArTopkState
from aiops.collective.trials import Trials
from aiops.errors import ConfigError
from aiops.policy.density import Fixed
from aiops.policy.exchange import Exchange, Plan
from tests.collective.processes import run

FIRST = Exchange("artopk_ring", 0.1)
CANDIDATES = (Exchange("allgather_ring", 0.2), Exchange("artopk_ring", 0.02))
COLLECTIVES = ("artopk_ring", "allgather_ring")
# The trials are due after this step, and go over the end of two passes.
DUE, STEPS, BATCHES, ITERATIONS = 3, 17, 5, 10


@dataclass(frozen=True)
class Scripted:
    """Wants trials once, and then changes to what it was told to, or not at all."""

    plan: Exchange | None = None
    seen: list = field(default_factory=list, repr=False, compare=False)
    curves: list = field(default_factory=list, repr=False, compare=False)

    first = FIRST
    probes = False
    trials = CANDIDATES

    def judge(self, load, collectives):
        return self

    def observe(self, seen):
        self.seen.append(seen)
        return not self.curves and seen.step >= DUE - 1

    def decide(self, curve):
        self.curves.append([curve.gain(one.density) for one in CANDIDATES])
        return None if self.plan is None else Plan(self.plan, "as told")


class Augmented(torch.utils.data.Dataset):
    """Draws of every global generator for every sample."""

    def __len__(self):
        return 8 * BATCHES

    def __getitem__(self, at):
        noise = random.random() + np.random.rand() + torch.rand(1).item()
        return torch.sin(torch.arange(6.0) * at) + 0.1 * noise, at % 3


class Net(nn.Module):
    """Dropout, running statistics, and a buffer that no state dict has."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)
        )
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.layers(x) * (1 + 0.01 * self.seen)


OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
}


def flat(part):
    """Numbers and tensors anywhere in dicts and lists, as what can be compared and sent."""
    if isinstance(part, dict):
        return {str(name): flat(each) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [flat(each) for each in part]
    return part.tolist() if isinstance(part, torch.Tensor) else part


class Training:
    """A training with everything that a trial could leave a trace in."""

    def __init__(self, rank, how, *, rewinds=True, hooked=False, density=None, **options):
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(5 + 100 * rank)
        self.outcomes, self.batches, self.fails_at = [], [], None
        self.net = net = Net()
        with torch.no_grad():
            for each in net.parameters():
                each.copy_(torch.cos(torch.arange(each.numel()) + 1.0).view(each.shape) / 3)
        self.policy = Scripted() if density is None else density
        self.state = ArTopkState(
            net.parameters(),
            self.policy,
            collectives=COLLECTIVES,
            on_step=self.outcomes.append,
            **options,
        )
        self.model = net
        if hooked:
            self.model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
            self.model.register_comm_hook(self.state, artopk_hook)
        self.hooked = hooked
        self.optimizer = OPTIMIZERS[how](net.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, 0.7)
        loader = torch.utils.data.DataLoader(Augmented(), 8, shuffle=True)
        passes = itertools.chain.from_iterable(itertools.repeat(loader))
        self.loader = Rewind(loader) if rewinds else passes

    def step(self):
        if len(self.batches) == self.fails_at:
            raise OSError("the disk is full")
        x, y = next(self.loader)
        self.batches.append((x.tolist(), y.tolist()))
        x.mul_(2.0)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        if not self.hooked:
            reduce_gradients(self.state)
        self.optimizer.step()
        self.schedule.step()

    def steps(self, n):
        for _ in range(n):
            self.step()
        return self

    def trials(self, **options):
        options = {"also": [self.schedule], "iterations": ITERATIONS} | options
        return Trials(self.state, self.model, self.optimizer, self.loader, **options)

    def everything(self):
        """All that a training goes on from, but for the batches."""
        return {
            "model": flat(self.net.state_dict()),
            "seen": self.net.seen.tolist(),
            "gradients": flat([each.grad for each in self.net.parameters()]),
            "optimizer": flat(self.optimizer.state_dict()),
            "schedule": flat(self.schedule.state_dict()),
            "exchange": flat(self.state.state_dict()),
            "last": None
            if self.state.last is None
            else (self.state.last.step, self.state.last.gain),
            "random": RandomState.now(),
        }


def measured(rank, ranks, how, options):
    """Train with trials and without; returns whether all is alike, and what was measured."""
    plain = Training(rank, how, rewinds=False, **options).steps(STEPS)
    wanted, gains = plain.everything(), [one.gain for one in plain.outcomes]
    one = Training(rank, how, **options)
    trials = one.trials()
    assert trials.measure(one.step) == ()
    one.steps(DUE)
    assert one.state.last.trials == CANDIDATES
    before = one.everything()
    found = trials.measure(one.step)
    after = one.everything()
    drawn, one.batches = one.batches, one.batches[:DUE]
    assert after == before
    # The same batches for each.
    assert drawn[DUE : DUE + ITERATIONS] == drawn[DUE + ITERATIONS :] == plain.batches[DUE:][:10]
    assert len(one.outcomes) == DUE
    one.steps(1)
    assert one.state.last.trials == ()
    one.steps(STEPS - DUE - 1)
    assert one.everything() == wanted
    assert one.batches == plain.batches
    assert [outcome.gain for outcome in one.outcomes] == gains
    return found, one.policy.curves, [each.compute_s for each in one.policy.seen], gains


def by_hand(rank, ranks, how, options):
    """Return the mean gains of each candidate, in a training of its own that goes on from a copy."""
    gains = []
    for one in CANDIDATES:
        begun = Training(rank, how, rewinds=False, **options).steps(DUE)
        told = {"collective": one.collective, "density": one.density}
        fixed = {"collectives": one.collective} | {
            name: value for name, value in options.items() if name != "hooked"
        }
        other = ArTopkState(begun.net.parameters(), Fixed(one.density), **fixed)
        other.load_state_dict(begun.state.state_dict() | told)
        begun.state, begun.hooked, begun.model = other, False, begun.net
        own = []
        for _ in range(ITERATIONS):
            begun.step()
            own.append(other.last.gain)
        gains.append(sum(own) / ITERATIONS)
    return gains


def both(rank, ranks, how, options):
    return measured(rank, ranks, how, options), by_hand(rank, ranks, how, options)


@pytest.mark.parametrize(
    ("how", "options"),
    [
        pytest.param("momentum", {}, id="momentum"),
        pytest.param("adam", {"values": "int8", "select": "mstopk"}, id="adam, lossy and random"),
        pytest.param("momentum", {"hooked": True}, id="a hook of DistributedDataParallel"),
        pytest.param("adam", {"momentum": 0.5}, id="corrected momentum"),
    ],
)
def test_a_training_that_was_measured_goes_on_as_one_that_never_was(how, options, tmp_path):
    results = run(both, 2, tmp_path, how, options)
    for (found, _, _, _), _ in results:
        assert tuple(trial.exchange for trial in found) == CANDIDATES
        assert all(trial.seconds > 0 for trial in found)
    (zero, one) = ([trial.gain for trial in found] for (found, *_), _ in results)
    assert zero == one
    for _, gains in results:
        assert gains == pytest.approx(zero, rel=1e-12)
    # Rank 0 decides on them, once, and the time of the trials is nobody's computing.
    (_, curves, compute_s, _), _ = results[0]
    assert curves == [pytest.approx(zero, rel=1e-12)]
    assert compute_s[DUE] == 0.0
    assert min(compute_s[1:DUE] + compute_s[DUE + 1 :]) > 0
    assert results[1][0][1] == []


def planned(rank, ranks):
    told = Exchange("allgather_ring", 0.2)
    one = Training(rank, "momentum", density=Scripted(told)).steps(DUE)
    one.trials().measure(one.step)
    one.steps(2)
    return [str(outcome.exchange) for outcome in one.outcomes], one.outcomes[DUE].change.reason


def test_the_next_step_decides_and_the_one_after_does_it(tmp_path):
    (exchanges, reason), (others, _) = run(planned, 2, tmp_path)
    assert exchanges == others == [str(FIRST)] * (DUE + 1) + ["allgather_ring:0.2"]
    assert reason == "as told"


def failing(rank, ranks):
    plain = Training(rank, "adam", rewinds=False).steps(STEPS)
    wanted = plain.everything()
    one = Training(rank, "adam").steps(DUE)
    before = one.everything()
    # In the first candidate, between two, and in the last step of all.
    for done in (4, ITERATIONS, 2 * ITERATIONS - 1):
        one.fails_at = len(one.batches) + done
        with pytest.raises(OSError, match="the disk is full"):
            one.trials().measure(one.step)
        assert one.everything() == before
        assert one.state.last.trials == CANDIDATES
        assert len(one.outcomes) == DUE
        one.fails_at, one.batches = None, one.batches[:DUE]
    assert len(one.trials().measure(one.step)) == 2
    one.batches = one.batches[:DUE]
    one.steps(STEPS - DUE)
    assert one.everything() == wanted
    assert one.batches == plain.batches
    return one.policy.curves


def test_a_step_that_fails_in_a_trial_leaves_no_trace(tmp_path):
    curves, _ = run(failing, 2, tmp_path)
    assert len(curves) == 1


def odd(rank, ranks):
    one = Training(rank, "momentum").steps(DUE)
    before = one.everything()
    words = []

    def no_exchange():
        next(one.loader)

    def no_batch():
        reduce_gradients(one.state)

    for attempt in (
        lambda: Trials(one.state, one.model, one.optimizer, [1, 2]),
        lambda: one.trials(iterations=0),
        lambda: one.trials().measure(no_exchange),
        lambda: one.trials().measure(no_batch),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        words.append(str(caught.value))
    assert one.everything() == before
    return words


def test_what_cannot_be_measured_is_refused_in_a_sentence(tmp_path):
    (words,) = run(odd, 1, tmp_path)
    assert words == [
        "batches are a list, which cannot be drawn twice: use Rewind(batches)",
        "iterations is 0, it must be a whole number >= 1",
        "a step exchanged no gradients, so that nothing can be tried by it",
        "a step drew no batch of batches, so that its data cannot come again",
    ]


def untold(rank, ranks):
    """A schedule that is left out is not restored."""
    one = Training(rank, "momentum").steps(DUE)
    before = copy.deepcopy(one.schedule.state_dict())
    one.trials(also=()).measure(one.step)
    return one.schedule.last_epoch - before["last_epoch"]


def test_what_else_changes_in_a_step_has_to_be_named(tmp_path):
    assert run(untold, 1, tmp_path) == [len(CANDIDATES) * ITERATIONS]


def adaptive(rank, ranks):
    one = Training(rank, "momentum", density="adaptive_trials")
    trials, found = one.trials(iterations=4), []
    for _ in range(12):
        one.step()
        found.append(trials.measure(one.step))
    seen = [(outcome.trials, str(outcome.exchange)) for outcome in one.outcomes]
    return seen, [[(each.exchange, each.gain) for each in some] for some in found]


def test_ranks_try_and_decide_alike(tmp_path):
    (seen, found), others = run(adaptive, 2, tmp_path)
    assert (seen, found) == others
    (measured,) = (some for some in found if some)
    at = found.index(measured)
    assert [each.density for each, _ in measured] == pytest.approx(
        [0.1, 0.1 / 3, 0.1 / 9, 0.1 / 27, 0.001]
    )
    assert all(0 < gain <= 1 for _, gain in measured)
    assert measured[0][1] > measured[-1][1]
    assert seen[at][0] == tuple(each for each, _ in measured)
    assert not any(trials for trials, _ in seen[at + 1 :])
    # Nothing changes before all is measured; what changes then depends on this machine's links.
    assert {exchange for _, exchange in seen[: at + 2]} == {"allgather_ring:0.1"}
