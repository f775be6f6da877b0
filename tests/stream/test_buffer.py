"""The storage policies: what they keep, in samples and bytes, and when the source has to wait."""

import pytest

from aiops.errors import ConfigError
from aiops.stream.buffer import Persistence, Truncation


def fill(buffer, names, n_bytes=10):
    for name in names:
        buffer.add(name, n_bytes)


def test_persistence_keeps_all_in_order():
    buffer = Persistence(1000)
    fill(buffer, "abcde")
    assert (len(buffer), buffer.n_bytes, buffer.dropped) == (5, 50, 0)
    assert buffer.take(2) == ["a", "b"]
    assert buffer.take(9) == ["c", "d", "e"]
    assert (len(buffer), buffer.n_bytes) == (0, 0)


def test_the_most_ever_held_is_remembered():
    buffer = Persistence(1000)
    fill(buffer, "abcde")
    buffer.take(5)
    fill(buffer, "fg", n_bytes=20)
    assert (buffer.most_samples, buffer.most_bytes) == (5, 50)


def test_the_source_waits_at_the_limit_and_goes_on_at_half():
    buffer = Persistence(100)
    seen = []
    for _ in range(10):
        buffer.add("x", 10)
        seen.append(buffer.must_wait)
    assert seen == [False] * 9 + [True]
    for _ in range(10):
        buffer.take(1)
        seen.append(buffer.must_wait)
    # 90, 80, 70, 60 are above half, 50 is not.
    assert seen[10:] == [True] * 4 + [False] * 6
    # On its way up it does not wait again at once.
    fill(buffer, "abcdef")
    assert not buffer.must_wait


def test_the_share_at_which_it_goes_on_can_be_said():
    buffer = Persistence(100, resume_share=0.0)
    fill(buffer, "x" * 10)
    buffer.take(9)
    assert buffer.must_wait
    buffer.take(1)
    assert not buffer.must_wait


def test_a_sample_larger_than_the_limit_is_held_alone():
    buffer = Persistence(100)
    buffer.add("whale", 5000)
    assert buffer.must_wait
    assert buffer.take(1) == ["whale"]
    assert not buffer.must_wait


def test_truncation_keeps_a_seconds_worth_of_the_newest():
    buffer = Truncation(1000)
    buffer.at_rate(2.5)
    fill(buffer, "abcde")
    assert (len(buffer), buffer.n_bytes, buffer.dropped) == (3, 30, 2)
    assert buffer.take(9) == ["c", "d", "e"]
    assert (buffer.most_samples, buffer.most_bytes) == (3, 30)


def test_truncation_keeps_all_until_a_rate_is_known():
    buffer = Truncation(1000)
    buffer.at_rate(0.0)
    fill(buffer, "abcde")
    assert len(buffer) == 5
    buffer.at_rate(2.0)
    assert buffer.take(9) == ["d", "e"]


def test_truncation_keeps_what_it_has_of_a_stream_that_stands_still():
    buffer = Truncation(1000)
    buffer.at_rate(3.0)
    fill(buffer, "abc")
    buffer.at_rate(0.0)
    assert len(buffer) == 3


def test_truncation_keeps_the_batch_that_is_waited_for():
    buffer = Truncation(1000)
    buffer.at_rate(2.0)
    buffer.want(4)
    fill(buffer, "abcdef")
    assert buffer.take(9) == ["c", "d", "e", "f"]


def test_truncation_can_keep_more_than_a_second():
    buffer = Truncation(1000, window_s=2.0)
    buffer.at_rate(2.0)
    fill(buffer, "abcdef")
    assert len(buffer) == 4


def test_truncation_has_the_source_wait_where_a_second_does_not_fit():
    buffer = Truncation(50)
    buffer.at_rate(100.0)
    fill(buffer, "abcde")
    assert buffer.must_wait
    buffer.take(3)
    assert not buffer.must_wait


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Persistence(0), "limit_bytes is 0, it must be >= 1"),
        (lambda: Persistence(10, resume_share=1.0), r"resume_share is 1.0, it must be in \[0, 1\)"),
        (lambda: Truncation(10, window_s=0.0), "window_s is 0.0, it must be finite and > 0"),
    ],
)
def test_limits_that_are_none_are_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
