"""The paper's recurrences, against its Table II and numbers worked out by hand."""

import pytest

from aiops.stream.queueing import Turn, persist, piled_up, piled_up_at_most, truncate

SAMPLE_BYTES = 3 * 1024  # "3 KB images"
GIB = 2**30


@pytest.mark.parametrize(
    ("step_s", "rate", "iterations", "gigabytes"),
    [
        # ScaDLES, Table II: ResNet152 (1.2 s) and VGG19 (1.6 s) at 100 and 600 samples/s, which it rounds to 3 %.
        (1.2, 100, 1e3, 0.35),
        (1.2, 600, 1e3, 2.06),
        (1.2, 100, 1e4, 3.5),
        (1.2, 600, 1e4, 20.6),
        (1.2, 100, 1e5, 34),
        (1.2, 600, 1e5, 200),
        (1.6, 100, 1e3, 0.47),
        (1.6, 600, 1e3, 2.75),
        (1.6, 100, 1e4, 4.7),
        (1.6, 600, 1e4, 27.5),
        (1.6, 100, 1e5, 46.8),
        (1.6, 600, 1e5, 275),
    ],
)
def test_equation_3_gives_the_buffers_of_table_2(step_s, rate, iterations, gigabytes):
    samples = piled_up_at_most(rate=rate, step_s=step_s, iterations=iterations)
    assert samples * SAMPLE_BYTES / GIB == pytest.approx(gigabytes, rel=0.033)


def test_equation_2_takes_the_batches_out():
    # (1.2 * 100 - 64) * 1000 + 100
    assert piled_up(rate=100, step_s=1.2, batch=64, iterations=1000) == pytest.approx(56_100)


def test_equation_2_at_the_edge_leaves_one_second():
    assert piled_up(rate=50, step_s=2.0, batch=100, iterations=1e6) == 50


def test_nothing_piles_up_before_a_worker_that_is_faster_than_its_stream():
    assert piled_up(rate=38, step_s=1.2, batch=64, iterations=1000) == 0.0


@pytest.mark.parametrize(
    ("held", "last_step_s", "turn"),
    [
        (0, 2.0, Turn(wait_s=0.0, held=36.0)),  # 50 * 2 = 100, 64 taken
        (30, 1.0, Turn(wait_s=0.0, held=16.0)),  # 50 + 30 = 80
        (14, 1.0, Turn(wait_s=0.0, held=0.0)),  # 64: just enough
        (4, 1.0, Turn(wait_s=0.2, held=0.0)),  # 54: 10 short at 50/s
        (0, 0.0, Turn(wait_s=1.28, held=0.0)),  # the first iteration
    ],
)
def test_persistence_keeps_what_the_batch_leaves(held, last_step_s, turn):
    found = persist(rate=50, last_step_s=last_step_s, batch=64, held=held)
    assert (found.wait_s, found.held) == pytest.approx((turn.wait_s, turn.held))


@pytest.mark.parametrize(("last_step_s", "wait_s"), [(2.0, 0.0), (1.0, 0.28), (0.0, 1.28)])
def test_truncation_keeps_nothing_and_waits_for_what_is_short(last_step_s, wait_s):
    found = truncate(rate=50, last_step_s=last_step_s, batch=64)
    assert (found.wait_s, found.held) == pytest.approx((wait_s, 0.0))


def test_persistence_repeated_grows_as_equation_2_says():
    held = 100.0  # the second before the first iteration
    for _ in range(1000):
        held = persist(rate=100, last_step_s=1.2, batch=64, held=held).held
    assert held == pytest.approx(piled_up(rate=100, step_s=1.2, batch=64, iterations=1000))
