"""The round suite: what its fits are made of."""

import pytest

from aiops.bench.campaign import Campaign, Outcome
from aiops.bench.result import Figure, Miss
from aiops.bench.run import Bench
from aiops.bench.suites import round


class Silent:
    def say(self, text): ...

    warn = say


@pytest.fixture
def lines(monkeypatch):
    """The results of a run in which nothing is measured but rounds, which cost what their means say."""

    async def against_bound(bench, size, n_workers, passes):
        seconds = round.SIZES[size] * n_workers * 1e-9
        # The median of one worker's rounds hides the slow ones, a mean does not.
        samples = {0: seconds / 2 if n_workers == 1 else seconds}
        return Campaign({round.OURS: Outcome(samples=samples, means={0: seconds})}, 0.0)

    async def nothing(*arguments, **options):
        return {}

    monkeypatch.setattr(round, "against_bound", against_bound)
    for name in ("layouts", "keys", "control", "push_memory"):
        monkeypatch.setattr(round, name, nothing)
    return []


async def test_growth_with_workers_is_fitted_to_means_alone(lines):
    await round.run(Bench(Silent(), lines.append, scratch=""))
    slopes = {line.case: line.value for line in lines if isinstance(line, Figure)}
    assert slopes["time against workers at 16 MB"] == pytest.approx(1.0)
    assert slopes["time against bytes from 1 MB on"] == pytest.approx(1.0)


async def test_a_fit_of_too_little_is_told_of(lines):
    await round.run(Bench(Silent(), lines.append, scratch=""))
    missed = [line.case for line in lines if isinstance(line, Miss)]
    assert missed == ["time against keys at 100 MB"]
