"""What an automatic server turns on, from what it measures: S/c, and how far its workers' data differ.

Sans-IO: frozen measurements in, a choice and its reason out. Two improvements are chosen between, which exclude each
other (drift correction reads the model's change, of which Top-k sends a part): Top-k both ways, for links that are
slow, and drift correction, for label skew.

S/c is the time of a sync without the wait for others over the fastest worker's local step, as measured: with chunk
streaming that is two thirds or so of what a whole push and a whole model take one after the other.

The skew is told from the mean cosine between any two pushes of a round, over the :data:`SKEW_ROUNDS` that begin with
the second: 1 where all workers go the same way. Noise of the gradients lowers it too, and later in training there is
little else; so it is judged once, and only where the training loss that the workers tell has fallen meanwhile. A run
that starts near its end, or whose workers tell no loss, is not judged and not corrected. Measured in the virtual lab
(Fashion-MNIST, a perceptron of 50,890 values, 6 workers of which one is 4 times slower, lr 0.1, batch 32):

============  ===========  ===========  ===========  ===========
S/c measured  7            11           27           49
============  ===========  ===========  ===========  ===========
Dirichlet .1  .055 - .077  .065 - .093  .072 - .094  .071 - .100
Dirichlet .3  .122 - .182  .143 - .218  .170 - .212  .168 - .212
Dirichlet 1   .301 - .356  .335 - .345  .343 - .358  .327 - .351
IID           .541 - .578  .553 - .574  .524 - .539  .482 - .483
============  ===========  ===========  ===========  ===========

They are the smallest and the largest of two to four partitions and two seeds. The margin between 0.1 and 0.3 is thin,
and another model or batch size moves all of it; what is certain is the order. Judged by the plain alignment
|sum w u|^2 / sum w |u|^2 the two all but touch: at most .310 with 0.1, at least .314 with 0.3.
In single runs at S/c = 39 by the clock of whole pushes, 27 as measured here, drift correction won over none with
Dirichlet 0.1 and lost with 0.3. The limits of S/c are less certain: in single runs, seconds to the target,

=============  ===  ===  =====  =====  =====
Dirichlet      S/c  lr   plain  Top-k  drift
=============  ===  ===  =====  =====  =====
.3, to 85 %    11   .1   24.2   21.1   -
.3             17   .1   26.0   21.1   -
.3             17   .2   16.6   19.2   -
.3             27   .1   28.3   21.1   -
.3             27   .2   16.8   19.2   -
.3             49   .1   30.1   20.9   -
.1, to 80 %    11   .1   -      12.8   16.5
.1             17   .1   -      12.8   25.6
.1             27   .1   37.0   12.8   18.5
.1             27   .2   -      9.8    never
.1             49   .1   never  9.7    23.3
=============  ===  ===  =====  =====  =====

where never is not within 45 to 60 s, and Top-k is topk:0.01. They are one seed, and nothing in them is tuned. With the
strong skew Top-k came out before drift correction in each of them, so that it goes first wherever links are slow enough
for it. Tuned (``benchmarks/nbsync_wan.py``), Dirichlet 0.1 at S/c = 39, drift correction reached 80 % within 60 s with
four of five seeds. Denser Top-k of coarser values, more of it down than up, is better than what the table has: tuned at
S/c = 175 and Dirichlet 0.3, 16.8 s where topk:0.03 took 18.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import Change, Choice, Measured, SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.sync import Bulk
from aiops.policy.weight import ByData, BySamples, BySteps, Uniform
from aiops.policy.work import FillTheSync

# The first merged round is of steps from where nobody has learnt anything, and all pushes agree.
SKEW_FROM = 2
SKEW_ROUNDS = 10
# Between the largest cosine of Dirichlet 0.1 and the smallest of 0.3, see the table above.
SKEW_BELOW = 0.11
# Where the loss has not fallen to this share of itself by then, what is compared is noise.
LOSS_SHARE = 0.8

# Rounds until a link is believed: the first ones carry the start of a connection.
LINK_ROUNDS = 4
TOPK_ABOVE = 20.0
# Below it Top-k is turned off again: half of the other one, so that what moves between the two changes nothing.
TOPK_BELOW = 10.0

# Rounds between two changes; each change but the first two doubles it.
DWELL_ROUNDS = 10
MOST_DWELL_ROUNDS = 1000

# A chunk that takes a fraction of the model.
AUTO_CHUNKS = 16

# Share of the values that Top-k sends, as int8: what the workers' choices sum up to has more of them than each.
UP_DENSITY = 0.05
DOWN_DENSITY = 0.1


@dataclass(frozen=True, slots=True)
class Automatic:
    """Chooses between nothing, Top-k both ways, and drift correction, by the limits above."""

    @property
    def measuring(self) -> range:
        """The versions whose pushes are compared with each other."""
        return range(SKEW_FROM, SKEW_FROM + SKEW_ROUNDS)

    def decide(self, seen: Measured) -> Change | None:
        """Return what is to change; None where nothing is."""
        if not 0.0 < seen.ratio < math.inf or seen.version < LINK_ROUNDS:
            return None
        if seen.changes and seen.version - seen.since < dwell_rounds(seen.changes):
            return None
        wanted = _wanted(seen)
        if wanted is None or wanted is seen.choice:
            return None
        return Change(wanted, _reason(seen, wanted))

    def agreement(self, cosines: Sequence[float], losses: Sequence[float]) -> float | None:
        """Return the mean of the cosines; None without them, or where the loss has hardly fallen or is not told."""
        if not cosines or not losses[-1] <= LOSS_SHARE * losses[0]:
            return None
        return math.fsum(cosines) / len(cosines)

    def dense_s(self, before_s: float, settled_s: float, now_s: float, *, share: float) -> float:
        """Return what a dense sync would take by now, in seconds, from what one with Top-k takes.

        Of two times the part that does not depend on the size is known, and taken to stay as it is. It is not where the
        dense one was no slower; then all but the smallest is taken for bytes.
        """
        fixed_s = min(settled_s, now_s)
        if before_s > settled_s:
            fixed_s = (settled_s - share * before_s) / (1.0 - share)
        fixed_s = max(0.0, min(fixed_s, now_s))
        return fixed_s + (now_s - fixed_s) / share

    def corrected(self, weights: WeightRule) -> WeightRule:
        """Return FedNova's rule with these shares."""
        return BySteps(weights)


def dwell_rounds(changes: int) -> int:
    """Return how many rounds the last of so many changes stands at least."""
    return min(DWELL_ROUNDS << min(max(changes - 2, 0), 10), MOST_DWELL_ROUNDS)


def _wanted(seen: Measured) -> Choice | None:
    # With both a slow link and a strong skew Top-k gains more.
    if seen.ratio > _limit(seen):
        return Choice.TOPK
    if not seen.judged:
        # Top-k stays on meanwhile if it is, and nothing is turned on that may be the wrong one.
        return None
    skewed = seen.agreement is not None and seen.agreement < SKEW_BELOW
    return Choice.DRIFT if skewed else Choice.PLAIN


# Above it Top-k is, or stays, on.
def _limit(seen: Measured) -> float:
    return TOPK_BELOW if seen.choice is Choice.TOPK else TOPK_ABOVE


def _reason(seen: Measured, wanted: Choice) -> str:
    link = f"a sync takes {seen.ratio:.0f} local steps of the fastest worker"
    if wanted is Choice.TOPK:
        return f"Top-k both ways is on: {link}, more than {TOPK_ABOVE:g}"
    if wanted is Choice.DRIFT:
        return (
            f"drift correction is on: the workers' data differ much (mean cosine of their pushes "
            f"{seen.agreement:.2f}, less than {SKEW_BELOW:g}), and {link}, no more than {_limit(seen):g}"
        )
    return f"Top-k is off: {link}, less than {TOPK_BELOW:g}"


def check_auto(
    sync: SyncPolicy,
    weights: WeightRule,
    work: WorkPolicy,
    *,
    merge: str,
    beta: float,
    chosen: Mapping[str, tuple[str, str]],
    bootstrap: str,
    proximal: float,
) -> None:
    """Refuse to choose automatically what is given, or where there is nothing to choose.

    Args:
        sync: When a round is closed.
        weights: What each push of a round is worth.
        work: How much a worker computes between two pushes.
        merge: What an overlapped worker does with its progress.
        beta: Share of it that "partial" keeps.
        chosen: The settings that ``auto`` chooses, by name: what each is, and what it must be.
        bootstrap: What the first push holds.
        proximal: FedProx's mu.

    Raises:
        ConfigError: A setting is one that ``auto`` chooses itself, or that it cannot work with.
    """
    if not isinstance(sync, Bulk):
        raise ConfigError(
            f"auto measures the workers of one round, and sync {sync!r} has none: use sync bulk:1, or leave auto out"
        )
    if not isinstance(work, FillTheSync):
        raise ConfigError(
            f"auto overlaps work with rounds that it measures, and work is {work!r}: use work fill_the_sync, or leave "
            "auto out"
        )
    if merge != "partial" or not 0 < beta < 1:
        text = f"{merge}:{beta:g}" if merge == "partial" else merge
        raise ConfigError(
            f"auto may turn drift correction on, which needs merge partial with 0 < beta < 1, not {text!r}: use "
            "partial:0.5, or leave auto out"
        )
    for name, (value, plain) in chosen.items():
        if value != plain:
            raise ConfigError(
                f"auto chooses {name} itself, and it is {value!r}: leave one of the two out"
            )
    if not isinstance(weights, Uniform | BySamples | ByData):
        raise ConfigError(
            f"auto takes weights for shares, per local step where it corrects drift, and {weights!r} is none: use "
            "by_data, by_samples or uniform, or leave auto out"
        )
    if bootstrap != "fixed":
        raise ConfigError(
            f"bootstrap {bootstrap!r} pushes steps twice, which auto would measure twice: use bootstrap 'fixed'"
        )
    if proximal > 0:
        raise ConfigError(
            f"proximal is {proximal:g}, which holds steps near the model as drift correction does: use proximal 0, or "
            "leave auto out"
        )
