"""What an automatic server decides, from measurements alone."""

import math

import pytest

from aiops.policy.auto import Automatic, dwell_rounds
from aiops.policy.base import Choice, Measured
from aiops.policy.weight import by_data, by_steps

AUTO = Automatic()
PLAIN, TOPK, DRIFT = Choice.PLAIN, Choice.TOPK, Choice.DRIFT


def seen(ratio, agreement=None, *, version=30, judged=True, choice=PLAIN, since=0, changes=0):
    return Measured(version, ratio, agreement, judged, choice, since, changes)


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        pytest.param(seen(0.0), None, id="without a measured link nothing is decided"),
        pytest.param(seen(math.inf), None, id="a link that is none"),
        pytest.param(seen(15.0, 0.5), None, id="a fast link and alike data need nothing"),
        pytest.param(seen(21.0, 0.5), TOPK, id="a slow link wants Top-k"),
        pytest.param(seen(21.0), TOPK, id="and also where the skew cannot be told"),
        pytest.param(seen(21.0, version=4, judged=False), TOPK, id="and does not wait for it"),
        pytest.param(seen(51.0, version=3, judged=False), None, id="but is to be believed first"),
        pytest.param(seen(19.0, version=9, judged=False), None, id="a fast one waits for the skew"),
        pytest.param(seen(5.0, 0.10), DRIFT, id="Dirichlet 0.1 wants drift correction"),
        pytest.param(seen(21.0, 0.10), TOPK, id="but Top-k where both are wanted"),
        pytest.param(seen(5.0, 0.12), None, id="Dirichlet 0.3 does not"),
        pytest.param(seen(15.0, 0.5, choice=TOPK), None, id="between the limits it stays on"),
        pytest.param(seen(9.0, 0.5, choice=TOPK), PLAIN, id="and off again below both"),
        pytest.param(seen(9.0, choice=TOPK, judged=False), None, id="once the skew is known"),
        pytest.param(seen(15.0, 0.1, choice=TOPK), None, id="the same where both are wanted"),
        pytest.param(seen(9.0, 0.1, choice=TOPK), DRIFT, id="back to drift correction"),
        pytest.param(seen(21.0, 0.1, choice=DRIFT), TOPK, id="a link that became slow"),
        pytest.param(
            seen(99.0, choice=PLAIN, since=21, changes=1), None, id="9 rounds after a change"
        ),
        pytest.param(
            seen(99.0, choice=PLAIN, since=20, changes=1), TOPK, id="10 rounds after a change"
        ),
        pytest.param(
            seen(99.0, choice=PLAIN, since=11, changes=3), None, id="the third stands for 20"
        ),
    ],
)
def test_decide(view, wanted):
    change = AUTO.decide(view)
    assert (change and change.choice) == wanted


def test_each_change_but_the_first_two_doubles_how_long_it_stands():
    assert [dwell_rounds(n) for n in (1, 2, 3, 4, 5, 8, 9, 50)] == [
        10, 10, 20, 40, 80, 640, 1000, 1000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (
            seen(27.4, 0.5),
            "Top-k both ways is on: a sync takes 27 local steps of the fastest worker, more than 20",
        ),
        (
            seen(7.4, 0.05),
            "drift correction is on: the workers' data differ much (mean cosine of their pushes 0.05, less than 0.11), "
            "and a sync takes 7 local steps of the fastest worker, no more than 20",
        ),
        (
            seen(7.4, 0.05, choice=TOPK),
            "drift correction is on: the workers' data differ much (mean cosine of their pushes 0.05, less than 0.11), "
            "and a sync takes 7 local steps of the fastest worker, no more than 10",
        ),
        (
            seen(4.0, 0.5, choice=TOPK),
            "Top-k is off: a sync takes 4 local steps of the fastest worker, less than 10",
        ),
    ],
)
def test_a_change_says_why_in_a_sentence(view, reason):
    assert AUTO.decide(view).reason == reason


def test_the_skew_is_the_mean_cosine_where_the_loss_has_fallen():
    assert AUTO.agreement([0.1, 0.3], [2.0, 1.6]) == pytest.approx(0.2)
    assert AUTO.agreement([0.1, 0.3], [2.0, 1.7]) is None
    assert AUTO.agreement([0.1, 0.3], [math.nan, math.nan]) is None
    assert AUTO.agreement([], []) is None


@pytest.mark.parametrize(
    ("before_s", "settled_s", "now_s", "due_s"),
    [
        # 0.05 s whatever the size, and 0.5 s for all bytes, of which Top-k sends a fiftieth.
        pytest.param(0.55, 0.06, 0.06, 0.55, id="the link is as it was"),
        pytest.param(0.55, 0.06, 0.07, 1.05, id="half as fast"),
        pytest.param(0.55, 0.06, 0.051, 0.1, id="ten times as fast"),
        pytest.param(0.55, 0.06, 0.04, 0.04, id="faster than the part that was fixed"),
        pytest.param(0.05, 0.06, 0.06, 0.06, id="a dense one that was faster says nothing"),
    ],
)
def test_what_a_dense_sync_would_take_is_told_from_two_sizes(before_s, settled_s, now_s, due_s):
    assert AUTO.dense_s(before_s, settled_s, now_s, share=0.02) == pytest.approx(due_s)


def test_drift_correction_takes_the_shares_per_step():
    assert AUTO.corrected(by_data()) == by_steps(by_data())
