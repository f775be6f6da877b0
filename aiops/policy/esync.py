"""ESync (Li et al., IEEE TSC 2020): fast workers fill the time that the slowest one takes for its local steps.

Synchronous rounds with FedAvg's update; only the number of local steps differs from worker to worker, and a state
server decides it while the round goes on. For worker k it knows c_k, the duration of a local step, m_k, that of a push,
i_k, the steps done in this round, and t_k, when the last one ended (or the round began for k):

1. the straggler is s = argmax d_k, with d_k = tau * c_k + m_k;
2. its update is expected at T = t_s + (tau - i_s) * c_s + m_s;
3. k may take one more step as long as t + c_k + m_k <= T, and takes at least one.

The paper's rule is tau = 1. More steps of the straggler in a round, while the others fill the same time, are ours: so
ESync can be tuned to a slow link as FedAvg is by its number of local steps. What a distributed state server needs
beside:

- **Steps are counted ahead.** The answer to a question is not "train" or "synchronize" but how many steps fit from the
  boundary on at which it was asked, which is what (3) would say step by step. A worker stops exactly, although an
  answer takes a round trip, in which it takes several steps. It asks before every step and never waits; the newest
  answer counts.
- **An answer that cannot be given yet is held back** until it can: while the straggler has not begun the round, or in
  the first round has not finished a step. To the worker that is "train", as in the paper, and it hears the moment when
  it ends.
- **Where even the first answer of a round would come too late** the worker goes by what was foreseen when the last
  round closed, :meth:`StateTable.foresee`: the paper's steady state, floor((c_s + m_s - m_k) / c_k) for tau = 1.
- **Clocks.** t_k is the state server's own: a question's arrival less half of the worker's round trip. No two clocks
  are compared.
- **m_k** runs from the worker's word that its push begins to the push's arrival, on the same clock; it is half of a
  round trip until one is measured. It holds encoding and the way up, whatever the way down is like. The shorter one of
  the last two counts: one that was held up by a broken connection says nothing about the next.
- **c_k** is smoothed by half. In T the straggler's last one counts, so that a slow-down is seen at once.
- Whoever is not waited for (dead, or not yet part of a round) is not the straggler.

The paper's pseudo-code has one clause more: everybody synchronizes once the straggler has done its step. Its formula
for the steady state and its waiting time let the others go on while the straggler's push is on its slow way, and so
does (3) with i_s = tau; the clause holds from the push's arrival on. The two differ where m_s > m_k + c_k, in favour of
ESync.

The authors' published prototype knows no m_k and asks for ``c_k + eps <= c_s + t_s - t``: :func:`esync_prototype`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import Progress, Work, WorkerView
from aiops.policy.number import is_count
from aiops.types import Version, WorkerId

# Weight of the newest measurement.
SMOOTHING = 0.5
# Sums of times on a clock that has run for years are rounded by less: what fits exactly fits.
ROUNDING_S = 1e-9
# No more steps are ever promised in one answer.
MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class ESync:
    """ESync's work: blocking rounds whose length each worker is told while it computes.

    Attributes:
        tau: Local steps of the straggler in a round, >= 1; the paper's is 1.
        push_time: Whether m_k counts, as in the paper; the prototype leaves it out.
        slack_s: What must be left of the time after a step, in seconds; the prototype's eps.
    """

    tau: int = 1
    push_time: bool = True
    slack_s: float = 0.0

    def __post_init__(self) -> None:
        if not is_count(self.tau, 1):
            raise ConfigError(f"esync's tau is {self.tau!r}, it must be a whole number >= 1")
        if not 0 <= self.slack_s < math.inf:
            raise ConfigError(f"esync's eps is {self.slack_s!r} s, it must be finite and >= 0")

    @property
    def overlap(self) -> bool:
        """False: a worker waits for the model before it goes on."""
        return False

    @property
    def each(self) -> Work:
        """At least one step."""
        return Work(1, None)

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return "at least one step" for everybody; the rest is said during the round."""
        return dict.fromkeys(monitor, self.each)

    def table(self) -> StateTable:
        """Return a new state server."""
        return StateTable(self)


@dataclass(slots=True)
class _Row:
    # r_k, i_k, t_k.
    version: Version
    n_steps: int = 0
    at: float = 0.0
    # c_k: smoothed, and the last one.
    step_s: float = 0.0
    last_step_s: float = 0.0
    # m_k; 0 until it is measured, and half of the round trip for as long. And the last measurement.
    push_s: float = 0.0
    last_push_s: float = 0.0
    half_rtt_s: float = 0.0
    # From the close of the last round until it began this one.
    start_s: float = 0.0
    # Where it stands: whether its push has begun, whether it is there, and whether the round waits for it.
    stopped: bool = False
    pushed: bool = False
    waited_for: bool = False


class StateTable:
    """The state server: what is known of every worker, and what follows from it.

    A worker's report, answer and look at the straggler take constant time, but for finding the straggler anew.

    Args:
        rule: What it decides by.

    Attributes:
        version: Version that the open round starts from.
    """

    def __init__(self, rule: ESync) -> None:
        self.version = Version(0)
        self._rule = rule
        self._rows: dict[WorkerId, _Row] = {}
        self._closed_at: float | None = None
        # Found when it is asked for, and kept as long as nothing can have changed it.
        self._straggler: WorkerId | None = None
        self._found = False

    def record(self, worker: WorkerId, progress: Progress) -> None:
        """Note what a worker says of itself."""
        row = self._rows.setdefault(worker, _Row(Version(-1)))
        enters = row.version != progress.version == self.version and not progress.n_steps
        if enters and self._closed_at is not None:
            row.start_s = progress.at - self._closed_at
        row.version, row.n_steps, row.at = progress.version, progress.n_steps, progress.at
        if 0.0 < progress.step_s < math.inf:
            row.step_s = _smoothed(row.step_s, progress.step_s)
            row.last_step_s = progress.step_s
        if progress.n_steps and not row.step_s:
            # Steps too short for the worker's clock, or for its honesty: they must not count as never timed.
            row.step_s = row.last_step_s = ROUNDING_S
        row.half_rtt_s = progress.rtt_s / 2
        row.stopped, row.pushed = progress.stopped, False
        row.waited_for = progress.waited_for
        self._found = self._found and self._is_faster(worker, row)

    def pushed(self, worker: WorkerId, now: float) -> None:
        """Note that a worker's push is there; how long it took is known if its begin was."""
        row = self._rows.get(worker)
        if row is None:
            return
        if row.stopped and not row.pushed:
            took_s = now - row.at
            row.push_s = min(took_s, row.last_push_s or took_s)
            row.last_push_s = took_s
        row.pushed = True
        self._found = False

    def reset(self, version: Version, now: float, waited_for: AbstractSet[WorkerId]) -> None:
        """Begin a round, as the parameter server tells the state server to.

        Args:
            version: Version that the round starts from.
            now: Seconds of the loop's clock.
            waited_for: Whose pushes the round waits for.
        """
        self.version, self._closed_at, self._found = version, now, False
        for worker, row in self._rows.items():
            row.n_steps, row.stopped, row.pushed = 0, False, False
            row.waited_for = worker in waited_for

    def drop(self, worker: WorkerId) -> None:
        """Forget a worker that has left."""
        if self._rows.pop(worker, None) is not None:
            self._found = False

    def straggler(self) -> WorkerId | None:
        """Return whom the round waits for longest; None while no step was timed, or not everybody's in this round."""
        if not self._found:
            self._straggler, self._found = self._slowest(), True
        return self._straggler

    @property
    def decidable(self) -> bool:
        """Whether there is a straggler and it has begun the round, or done its part of it."""
        slowest = self.straggler()
        return slowest is not None and self._has_begun(self._rows[slowest])

    def is_timed(self, worker: WorkerId) -> bool:
        """Return whether the duration of a worker's steps is known, so that its answer may wait for others."""
        return self._rows[worker].step_s > 0

    def decide(self, worker: WorkerId) -> int | None:
        """Return how many steps a worker may take after those that it last spoke of.

        0 is "synchronize", more is "train"; so is None, for as long as the number cannot be said.
        """
        row = self._rows[worker]
        least = 0 if row.n_steps else 1
        if row.version < self.version:
            # The round has closed without it.
            return least
        slowest = self.straggler()
        if slowest is None or not row.step_s:
            return None
        other = self._rows[slowest]
        left = 0 if other.stopped else max(0, self._rule.tau - other.n_steps)
        if worker == slowest:
            return max(least, left)
        if not self._has_begun(other):
            return None
        if other.pushed:
            return least
        end = other.at + left * other.last_step_s + self._push_s(other)
        return max(least, self._fitting(row, end - row.at))

    def foresee(self, worker: WorkerId) -> int | None:
        """Return how many steps a worker will take in a round that has just begun if all goes on as before.

        None while nothing is known.
        """
        row, slowest = self._rows.get(worker), self.straggler()
        if row is None or slowest is None or not row.step_s:
            return None
        if worker == slowest:
            return self._rule.tau
        other = self._rows[slowest]
        work_s = self._rule.tau * other.last_step_s + self._push_s(other)
        return max(1, self._fitting(row, other.start_s + work_s - row.start_s))

    def _has_begun(self, row: _Row) -> bool:
        return row.version == self.version or row.pushed

    def _push_s(self, row: _Row) -> float:
        return (row.push_s or row.half_rtt_s) if self._rule.push_time else 0.0

    # d_k.
    def _takes_s(self, row: _Row) -> float:
        return self._rule.tau * row.step_s + self._push_s(row)

    # (3), as many times as it holds.
    def _fitting(self, row: _Row, left_s: float) -> int:
        free_s = left_s - self._push_s(row) - self._rule.slack_s + ROUNDING_S
        return int(min(max(free_s / row.step_s, 0.0), MOST_STEPS))

    # Whether a row that has changed leaves the straggler the same: (1) for one worker more.
    def _is_faster(self, worker: WorkerId, row: _Row) -> bool:
        slowest = self._straggler
        if slowest is None or worker == slowest or not row.step_s:
            return False
        return self._takes_s(row) <= self._takes_s(self._rows[slowest])

    def _slowest(self) -> WorkerId | None:
        slowest, longest_s = None, 0.0
        for worker, row in self._rows.items():
            if not row.waited_for:
                continue
            if not row.step_s:
                if row.version == self.version and not row.pushed:
                    # It is at its first step ever, which may take any time.
                    return None
                continue
            if self._takes_s(row) > longest_s:
                slowest, longest_s = worker, self._takes_s(row)
        return slowest


def _smoothed(old: float, new: float) -> float:
    return new if old == 0.0 else old + SMOOTHING * (new - old)


def esync(tau: int = 1) -> ESync:
    """Return ESync's work: the slowest worker takes ``tau`` local steps a round, the others what fits into their time.

    Args:
        tau: Local steps of the straggler, >= 1; 1 is the paper's.
    """
    return ESync(tau)


def esync_prototype(tau: int = 1, eps: float = 0.5) -> ESync:
    """Return ESync's work by the rule of the authors' published prototype: without push times, with a reserve.

    Args:
        tau: Local steps of the straggler, >= 1; 1 is the prototype's.
        eps: Seconds that must be left after a step, >= 0; to be tuned to the duration of the steps.
    """
    return ESync(tau, push_time=False, slack_s=eps)
