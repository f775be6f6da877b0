"""What devices on streams train on, and what a normalisation knows of all of them, on a few made-up samples."""

import numpy as np
import pytest
import torch

from aiops.data.base import Dataset
from aiops.policy.injection import Injection
from benchmarks import streams_training
from benchmarks.streams_clock import RESNET152
from benchmarks.streams_method import Method, Setting, Task
from benchmarks.streams_training import Fleet, dealt, pooled, shards, train

EVEN = Setting("S1'", 4, False, RESNET152)
SKEWED = Setting("S1'", 4, True, RESNET152)
TASK = Task(hidden=8, steps=6, evaluate=2, n_test=100)


@pytest.fixture(scope="module")
def source():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 10
    images = rng.random((400, 28, 28), np.float32) + labels[:, None, None].astype(np.float32)
    return Dataset("made up", 10, images, labels, images[:100], labels[:100])


def test_devices_have_samples_of_all_labels_or_of_one(source):
    even = shards(source.y_train, EVEN, 0)
    assert sorted(np.concatenate(even)) == list(range(400))
    assert all(len(set(source.y_train[each])) == 10 for each in even)
    skewed = shards(source.y_train, SKEWED, 0)
    assert [set(source.y_train[each]) for each in skewed] == [{0}, {1}, {2}, {3}]


def test_a_stream_brings_all_its_samples_before_any_again(source):
    fleet = Fleet(TASK, source, SKEWED, 0)
    assert sorted(fleet.records(2, 0, 40)) == sorted(fleet.records(2, 40, 40))
    assert list(fleet.records(2, 0, 80)) == [
        *fleet.records(2, 0, 30),
        *fleet.records(2, 30, 50),
    ]
    assert list(fleet.records(2, 0, 40)) != list(fleet.records(2, 40, 40))


def test_a_device_trains_on_its_own_and_on_what_others_give(source):
    fleet = Fleet(TASK, source, SKEWED, 0)
    draws = [Injection(0.5, 0.5, 0).plan(0, [30] * 4, rank) for rank in range(4)]
    batches = dealt(fleet, draws, [0] * 4)
    donors = draws[0].donors
    # 30 / (1 + .5 * 2) are its own, and every donor gives half of them to each of the others.
    for rank, batch in enumerate(batches):
        counts = np.bincount(source.y_train[batch], minlength=4)
        given = {donor: 7 for donor in donors if donor != rank}
        assert dict(enumerate(counts[:4])) == dict.fromkeys(range(4), 0) | given | {rank: 15}
        assert len(batch) == draws[0].batches[rank]


def test_pooled_statistics_are_those_of_all_samples_together():
    rng = np.random.default_rng(0)
    devices = rng.normal(size=(3, 50, 2)) + np.array([0.0, 1.0, 5.0])[:, None, None]
    statistics = [
        {
            "2.running_mean": torch.tensor(each.mean(0)),
            "2.running_var": torch.tensor(each.var(0)),
            "2.num_batches_tracked": torch.tensor(3),
        }
        for each in devices
    ]
    found = pooled(statistics)
    whole = devices.reshape(-1, 2)
    np.testing.assert_allclose(found["2.running_mean"], whole.mean(0))
    np.testing.assert_allclose(found["2.running_var"], whole.var(0))


def test_a_training_is_the_same_each_time_and_every_part_changes_it(source, monkeypatch):
    monkeypatch.setattr(streams_training, "samples", lambda: source)

    def run(**parts):
        return train(TASK, SKEWED, Method("x", **parts), 0.05, 0)

    whole = run(alpha=0.5, beta=0.5)
    assert whole == run(alpha=0.5, beta=0.5)
    assert whole.looks == [0, 2, 4, 6]
    assert whole.seconds == sorted(whole.seconds)
    assert whole.injected_bytes > 0
    assert whole.dropped > 0
    assert run().injected_bytes == 0
    kept = run(truncates=False)
    assert (kept.dropped, kept.most > run().most) == (0.0, True)
    assert run(batches="fixed").samples == 64 * 4
    assert (
        run(weighs=False).accuracy != run().accuracy
        or run(weighs=False).megabytes < run().megabytes
    )
