"""A policy that changes while workers train: adopted with the model that brings it, at a step boundary."""

import msgspec
import numpy as np
import pytest

from aiops.codec.table import CODEC
from aiops.config import parse_codec
from aiops.errors import RemoteProtocolError
from aiops.wire.message import Policy
from aiops.worker.follow import Follower
from aiops.worker.machine import Rule, machine_of
from aiops.worker.mirror import Mirror
from aiops.worker.ticket import Snapshot

PLAIN = Policy(True, 1, None, "dense", "partial", 0.5, 0.5, "fixed")
DRIFT = msgspec.structs.replace(PLAIN, drift="infer")


def vector(*values):
    return np.array(values, np.float32)


def machine(x, policy=PLAIN, **more):
    return machine_of(policy, x, 0, accumulated=x.size, **more)


def walk(overlap, x, *changes):
    for change in changes:
        x += np.float32(change)
        if overlap.correction is not None:
            x += overlap.correction
        overlap.stepped()


def arrive(overlap, version, value, moved_steps, policy, **more):
    flat = vector(value)
    snapshot = Snapshot(version, flat, n_merged=2, moved_steps=moved_steps, policy=policy)
    overlap.deliver(snapshot, **more)


def test_drift_correction_begins_with_a_model_and_ends_with_another():
    x = vector(0.0)
    overlap = machine(x)
    walk(overlap, x, 1.0, 3.0)
    assert overlap.push(x).values == vector(4.0)
    walk(overlap, x, 1.0)
    # The model that turns it on: nothing is known yet, and the window that is pushed now is the first one compared.
    arrive(overlap, 1, 10.0, 4.0, DRIFT)
    assert overlap.push(x).values == vector(1.0)
    assert overlap.correction is None
    assert x == vector(10.5)
    walk(overlap, x, 2.0)
    # It holds that window (p = 1) and has moved 6 in 2 steps (P = 3).
    arrive(overlap, 2, 16.0, 2.0, DRIFT)
    assert overlap.push(x).values == vector(2.0)
    assert overlap.correction == vector(2.0)
    walk(overlap, x, 1.0)
    # The model that turns it off: what is pushed is without the last correction, 3 - 2, and steps are plain again.
    arrive(overlap, 3, 20.0, 1.0, PLAIN)
    assert overlap.push(x).values == vector(1.0)
    assert overlap.correction is None
    walk(overlap, x, 1.0)
    arrive(overlap, 4, 30.0, 1.0, PLAIN)
    assert overlap.push(x).values == vector(1.0)


def test_the_merge_rule_is_that_of_the_model_it_merges():
    x = vector(0.0)
    overlap = machine(x)
    walk(overlap, x, 1.0)
    overlap.push(x)
    walk(overlap, x, 4.0)
    arrive(overlap, 1, 10.0, 1.0, msgspec.structs.replace(PLAIN, merge="carry"))
    overlap.push(x)
    assert x == vector(14.0)


def test_a_worker_that_begins_anew_follows_as_well():
    x = vector(0.0)
    overlap = machine(x)
    walk(overlap, x, 1.0)
    overlap.push(x)
    arrive(overlap, 5, 3.0, 1.0, DRIFT, merged=False)
    assert overlap.push(x) is None
    walk(overlap, x, 1.0)
    assert overlap.push(x).values == vector(1.0)
    walk(overlap, x, 1.0)
    arrive(overlap, 6, 5.0, 1.0, DRIFT)
    overlap.push(x)
    # p = 1, P = 2.
    assert overlap.correction == vector(1.0)


@pytest.mark.parametrize(
    "follower",
    [
        pytest.param(Follower(Rule("carry"), 1), id="its own rule does not go with it"),
        pytest.param(Follower(None, 1, exact=False), id="16-bit parameters round it away"),
    ],
)
def test_a_worker_that_cannot_be_corrected_goes_on_without(follower, caplog):
    rule = follower.own or Rule("partial")
    snapshot = Snapshot(1, vector(1.0), policy=DRIFT)
    assert follower.drift(None, DRIFT, rule, snapshot) is None
    assert "drift correction" in caplog.text


def test_a_rule_of_its_own_is_kept():
    own = Rule("carry")
    assert Follower(own, 1).rule(own, PLAIN) is own
    assert Follower(None, 1).rule(Rule(), PLAIN) == Rule("partial")


def test_a_mirror_begins_with_the_model_that_says_so_and_ends_with_another():
    mirror = Mirror(None, parse_codec)
    mirror.take(3, vector(1.0, 2.0))
    assert not mirror.on
    assert mirror.version is None
    mirror.follow("topk:0.5", 4, vector(1.0, 2.0))
    assert mirror.on
    assert mirror.version == 4
    mirror.follow("topk:0.5", 5, vector(9.0, 9.0))
    assert mirror.version == 4
    mirror.follow("dense", 6, vector(1.0, 2.0))
    assert not mirror.on
    assert mirror.version is None


def test_a_codec_that_a_worker_does_not_know_is_said_in_a_sentence():
    assert "brotli" not in CODEC
    with pytest.raises(RemoteProtocolError, match=r"model of version 4 .*brotli"):
        Mirror(None, parse_codec).follow("brotli", 4, vector(1.0))
