"""Virtual steps on streams, against numbers worked out by hand and the real stream, buffer and intake."""

import asyncio

import pytest

from aiops.stream.buffer import Persistence, Truncation
from aiops.stream.decode import Samples
from aiops.stream.intake import Intake
from aiops.stream.replay import replay_samples
from benchmarks import streams_clock
from benchmarks.streams_clock import RESNET152, Clock, pile, shipping


def test_a_batch_of_64_takes_what_the_paper_says():
    assert RESNET152.compute_s(64) == pytest.approx(1.2)
    assert RESNET152.compute_s(0) == pytest.approx(0.6)


def test_a_link_is_slower_for_a_smaller_gradient_by_as_much_as_it_is_smaller():
    # 60.2 M values of 4 bytes at 5 Gbit/s.
    whole_s = 60_200_000 * 4 * 8 / 5e9
    assert RESNET152.link(1000).byte_s * 1000 * 4 == pytest.approx(whole_s)


def test_shipped_records_pass_every_link_but_those_of_nobody():
    # 3 ranks: 2 ms of latency, and 10 records of 3072 bytes at 5 Gbit/s.
    seconds, n_bytes = shipping([0, 4, 6])
    assert n_bytes == 30_720
    assert seconds == pytest.approx(2e-3 + 30_720 * 8 / 5e9)
    assert shipping([0, 0, 0]) == (0.0, 0)


def test_all_wait_for_the_last_and_what_comes_meanwhile_is_kept():
    clock = Clock([10.0, 40.0], truncates=False)
    assert clock.take([20, 20]) == [0, 0]
    span = clock.step([1.0, 1.0], 0.5)
    # 2 s for the batch of the slow one; 1.5 s later both are done.
    assert (span.wait_s, span.compute_s, span.exchange_s) == pytest.approx((2.0, 1.0, 0.5))
    assert clock.now == pytest.approx(3.5)
    # The slow one has had 1.5 s since its batch was full, 15 samples; the other 3 s, 120.
    assert clock.take([20, 20]) == [20, 20]
    assert clock.held == pytest.approx([0.0, 100.0])
    assert clock.most == pytest.approx([20.0, 120.0])
    assert clock.step([1.0, 1.0], 0.5).wait_s == pytest.approx(0.5)


def test_truncation_skips_what_is_old():
    clock = Clock([40.0], truncates=True)
    clock.take([20])
    clock.step([1.0], 0.5)
    # 60 have come, 40 are kept, and 20 are trained on: the newest.
    assert clock.take([20]) == [60]
    assert clock.dropped == pytest.approx([40.0])
    assert clock.held == [0.0]
    assert clock.most == [40.0]


def test_a_pile_grows_with_the_steps_unless_it_is_truncated():
    # 100 a second, 64 of 150 taken by each step of 1.5 s; the first one begins with none.
    kept = [pile([100.0], [64], [1.2], 0.3, steps, truncates=False) for steps in (101, 1001)]
    assert kept == pytest.approx([64 + 100 * 86, 64 + 1000 * 86])
    assert pile([100.0], [64], [1.2], 0.3, 1001, truncates=True) == 100.0


@pytest.mark.parametrize("truncates", [False, True])
def test_a_pile_goes_on_as_it_has_begun(truncates, monkeypatch):
    rates, batches, compute_s = [22.0, 64.0, 90.0], [64, 64, 90], [1.2, 1.2, 1.4]

    def grown():
        return pile(rates, batches, compute_s, 0.3, 3000, truncates=truncates)

    extended = grown()
    monkeypatch.setattr(streams_clock, "SETTLED", 3000)
    assert extended == pytest.approx(grown())


class Numbers:
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return b"", b"%d" % index


@pytest.mark.virtual
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize(("rate", "batch"), [(22.0, 64), (64.0, 64), (90.0, 64), (90.0, 90)])
async def test_real_streams_and_buffers_wait_and_hold_as_the_clock_says(rate, batch, truncates):
    loop = asyncio.get_running_loop()
    clock = Clock([rate], truncates=truncates)
    source = replay_samples(Numbers(), rate=rate)
    buffer = Truncation(10**9) if truncates else Persistence(10**9)
    intake = Intake(Samples(source, int), buffer)
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        for _ in range(50):
            began = loop.time()
            taken = await intake.take(batch)
            waited = loop.time() - began
            first = clock.take([batch])[0]
            # Records are whole, and the rate is measured: a sample or two of difference.
            assert len(taken) == batch
            assert clock.step([1.2], 0.3).wait_s == pytest.approx(waited, abs=2 / rate)
            if not truncates:
                assert taken[0].value == first
                assert len(buffer) == pytest.approx(clock.held[0], abs=2)
            elif batch == rate:
                assert taken[0].value == pytest.approx(first, abs=2)
                assert buffer.dropped == pytest.approx(clock.dropped[0], abs=2)
            await asyncio.sleep(1.5)
        await source.aclose()
    clock.take([batch])
    assert buffer.most_samples == pytest.approx(clock.most[0], abs=2)
