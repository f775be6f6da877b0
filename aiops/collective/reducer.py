"""One rank's side of the exchange of gradients, step after step: memory, operator, tally and what follows from it.

Sans-IO: :meth:`Reducer.reduce` is a dialogue of requests, see :mod:`aiops.collective.request`. All ranks hold the same
state but for their memories; rank 0 alone decides, and says so in the tail of its values.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiops.collective import tail
from aiops.collective.control import Control
from aiops.collective.memory import Draft, Memory
from aiops.collective.meter import Meter
from aiops.collective.operator import OPERATORS, Seat, Sent
from aiops.collective.position import POSITIONS
from aiops.collective.probe import PING_STEPS, PINGS, Probe
from aiops.collective.request import ROUTES, Dialogue, Floats, Gather, Path, Ping
from aiops.collective.select import selection
from aiops.collective.tail import Report, Tally
from aiops.collective.value import VALUES
from aiops.collective.weight import count, weigh
from aiops.config.exchange import POSITION_BYTES, VALUE_BYTES, ExchangeConfig
from aiops.errors import ConfigError, NotFinite
from aiops.kernels import first_nonfinite
from aiops.policy.exchange import Exchange, Load, Network, Plan, Seen, TriedGains

log = logging.getLogger("aiops.collective")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step's exchange was like.

    Attributes:
        step: Steps finished, from 1.
        exchange: How the gradients were exchanged.
        k: Values that each rank sent.
        gain: Energy sent over energy there, of all ranks together, in [0, 1].
        path: What its requests cost the busiest link.
        seconds: How long this rank was busy with them.
        network: What the links are like; None where nobody measures, or not yet.
        change: How the next step's are exchanged where that changes, and why; None where it does not. Only rank 0 knows
            why.
        trials: What all ranks are to try before rank 0 decides, see :class:`aiops.collective.trials.Trials`; empty
            where it needs nothing.
        samples: What each rank's gradient was the mean of; empty where gradients are not weighted by it.
    """

    step: int
    exchange: Exchange
    k: int
    gain: float
    path: Path
    seconds: float
    network: Network | None
    change: Plan | None
    trials: tuple[Exchange, ...]
    samples: tuple[int, ...] = ()


class Reducer:
    """One rank's exchange of gradients.

    Args:
        config: How; the same on every rank, which the first step checks.
        n: Values of the gradient.
        rank: This rank.
        ranks: How many there are.
        layers: Values of each layer, for layer-wise selection; their sum is ``n``.

    Attributes:
        exchange: How the next step's gradients are exchanged.
        step: Steps finished.
        memory: What this rank has not sent.
    """

    __slots__ = (
        "_agreed",
        "_control",
        "_last",
        "_load",
        "_probe",
        "_probes",
        "_scaled",
        "_seat",
        "_trials",
        "_words",
        "exchange",
        "memory",
        "step",
    )

    def __init__(
        self,
        config: ExchangeConfig,
        n: int,
        *,
        rank: int,
        ranks: int,
        layers: Sequence[int] = (),
    ) -> None:
        self.memory = Memory(n, momentum=config.momentum)
        self._seat = Seat(
            rank,
            ranks,
            self.memory,
            VALUES[config.values](),
            POSITIONS[config.positions],
            selection(config.select, layers or (n,), config.seed + rank),
        )
        self._load = Load(n, ranks, POSITION_BYTES[config.positions], VALUE_BYTES[config.values])
        judge = config.density.judge(self._load, config.collectives)
        self._words = str(config)
        self._scaled = np.empty(n, np.float32) if config.weights == "by_samples" else None
        self._probes = judge.probes and ranks > 1
        self._trials = len(judge.trials)
        self._control = Control(judge, config.collectives)
        self._probe = Probe()
        self.exchange = judge.first
        self.step = 0
        self._agreed = False
        # The largest request of the step before, and how long it took here.
        self._last = (Path(0, 0.0), 0.0)

    def reduce(
        self, gradient: Floats, *, compute_s: float = 0.0, samples: int | None = None
    ) -> Dialogue[Outcome]:
        """Replace this rank's gradient by the mean of what all ranks send, weighted where the configuration says so.

        A step that is refused, or cut by an error of a request, changes nothing: neither the gradient nor the memory.

        Args:
            gradient: float32, shape (n,), C-contiguous; overwritten when the step is done.
            compute_s: Seconds since the last exchange ended; 0 where that is not known.
            samples: What ``gradient`` is the mean of, with weights by samples. With 0 the gradient is not looked at,
                and what was left of earlier ones goes on being sent.

        Raises:
            NotFinite: A rank's gradient is NaN or infinite, or the sum is; raised alike on every rank, naming it.
            ConfigError: The ranks were not told the same, or a rank's ``samples`` is missing, makes no sense, or is
                given in vain.
        """
        if samples is not None and self._scaled is None:
            raise ConfigError(
                f"samples is {samples!r}, but weights is 'uniform': use weights='by_samples', or leave samples out"
            )
        if not self._agreed:
            yield from self._agree()
        latency_s = 0.0
        if self._probes and self.step % PING_STEPS == 0:
            latency_s = Probe.latency((yield Ping(self.step // PING_STEPS, PINGS)).data)
        exchange, meter, plans = self.exchange, Meter(self._load.ranks), list[Plan]()
        counts: tuple[int, ...] = ()
        update = gradient
        k = self._load.kept(exchange.density)
        operator, route = OPERATORS[exchange.operator], ROUTES[exchange.route]
        if self._scaled is not None:
            counts = yield from meter.watch(count(samples, route))
            update = weigh(gradient, counts, self._seat.rank, out=self._scaled)
        tell = self._telling(latency_s, compute_s, plans)
        sent = yield from meter.watch(operator(self._seat, update, self.step, k, route, tell))
        tally = tail.read(sent.tail, ranks=self._load.ranks)
        _refuse(sent, tally)
        sent.write(gradient, 1.0 if counts else 1.0 / self._load.ranks)
        self.memory.commit(sent.draft, sent.index)
        if sent.score is not None:
            self._seat.var.keep(sent.score)
        return self._close(k, tally, meter, plans, counts)

    def tried(self, gains: Mapping[float, float]) -> None:
        """Take what trials came to, on which rank 0 decides in the next step.

        Args:
            gains: Mean gain by density; the same on every rank, since tallies are.
        """
        if self._seat.rank == 0:
            self._control.tried(TriedGains(gains))

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank's training goes on from: plain values, and arrays that are the reducer's own."""
        return {
            "n": self.memory.n,
            "rank": self._seat.rank,
            "ranks": self._load.ranks,
            "step": self.step,
            "collective": self.exchange.collective,
            "density": self.exchange.density,
            "score": self._seat.var.score,
            "residual": self.memory.residual,
            "velocity": self.memory.velocity,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`; nothing changes where it is refused.

        Raises:
            ConfigError: It is of another size, rank or number of ranks, has or lacks momentum, or is incomplete.
        """
        own = self.state_dict()
        missing = sorted(set(own) - set(state))
        if missing:
            raise ConfigError(f"state has no {', '.join(missing)}")
        for name in ("n", "rank", "ranks"):
            if state[name] != own[name]:
                raise ConfigError(f"state is of {name} {state[name]}, here it is {own[name]}")
        if (state["velocity"] is None) != (own["velocity"] is None):
            has, lacks = ("lacks", "has") if state["velocity"] is None else ("has", "lacks")
            raise ConfigError(f"state {has} momentum, the configuration {lacks} it")
        exchange = Exchange(state["collective"], float(state["density"]))
        if not self._control.knows(exchange):
            raise ConfigError(f"state exchanges by {exchange}, which the configuration leaves out")
        self.memory.residual[:] = state["residual"]
        if self.memory.velocity is not None:
            self.memory.velocity[:] = state["velocity"]
        self.step, self.exchange = int(state["step"]), exchange
        self._seat.var.score = state["score"]
        self._seat.guesses.clear()
        self._agreed = False

    # What makes this rank's tail when its energies are known; rank 0 decides then, and `plans` receives its plan.
    def _telling(
        self, latency_s: float, compute_s: float, plans: list[Plan]
    ) -> Callable[[Draft, float], Floats]:
        def tell(draft: Draft, sent: float) -> Floats:
            plan, trials = None, tuple[int, ...]()
            if self._seat.rank == 0:
                plan = self._control.decide(draft)
                trials = self._control.numbers(self._control.trials)
            if plan is not None:
                plans.append(plan)
            report = Report(
                bad=draft.bad >= 0,
                seconds=self._last[1],
                latency_s=latency_s,
                compute_s=compute_s,
                sent=sent,
                energy=draft.energy,
                directive=None if plan is None else self._control.directive(plan.exchange),
                vote=self._control.vote(draft),
                trials=trials,
            )
            return tail.pack(
                report, rank=self._seat.rank, ranks=self._load.ranks, trials=self._trials
            )

        return tell

    # What follows from a step that counts.
    def _close(
        self, k: int, tally: Tally, meter: Meter, plans: list[Plan], samples: tuple[int, ...]
    ) -> Outcome:
        exchange = self.exchange
        self.step += 1
        self._probe.ping(tally.latency_s)
        self._probe.transfer(self._last[0], tally.seconds)
        self._last = meter.largest
        network = self._probe.network
        if self._seat.rank == 0:
            seen = Seen(self.step, exchange, network, tally.compute_s, tally.gain, tally.votes)
            self._control.look(seen)
        change = None
        if tally.directive is not None:
            self.exchange = self._control.exchange(tally.directive)
            change = Plan(self.exchange, plans[0].reason if plans else "rank 0 decided")
            if self._seat.rank == 0:
                log.info("after step %d by %s: %s", self.step, change.exchange, change.reason)
        return Outcome(
            step=self.step,
            exchange=exchange,
            k=k,
            gain=tally.gain,
            path=meter.total,
            seconds=meter.seconds,
            network=network,
            change=change,
            samples=samples,
            trials=self._control.exchanges(tally.trials),
        )

    # Ranks that were told different things would wait for each other, or add up what does not belong together.
    def _agree(self) -> Dialogue[None]:
        own = np.array([self.memory.n, self.step, zlib.crc32(self._words.encode())], np.int64)
        rows = (yield Gather(own, ROUTES["ring"])).data
        for rank, row in enumerate(rows.tolist()):
            for what, theirs, first in zip(_TERMS, row, rows[0].tolist(), strict=True):
                if theirs != first:
                    raise ConfigError(
                        f"rank {rank} {what.format(theirs)}, rank 0 {what.format(first)}"
                    )
        self._agreed = True


_TERMS = ("has {} values", "has finished {} steps", "exchanges by other rules (checksum {})")


def _refuse(sent: Sent, tally: Tally) -> None:
    if tally.bad:
        which = ", ".join(str(rank) for rank in tally.bad)
        where = f" (here at position {sent.draft.bad})" if sent.draft.bad >= 0 else ""
        raise NotFinite(f"the gradient of rank {which} is not finite{where}")
    for index, value in sent.parts:
        at = first_nonfinite(value)
        if at >= 0:
            place = at if index is None else int(index[at])
            raise NotFinite(f"the sum of all ranks' values is {value[at]} at position {place}")
