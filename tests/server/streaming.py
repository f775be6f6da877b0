"""What the tests of chunk streaming share: a model of several buckets, slow links, and every version that ever was."""

import numpy as np

from aiops.wire.frame import Kind
from tests.server.kit import cluster, count

# Eight buckets of 64 values; one takes a second on a slow link.
N, BUCKETS = 512, 8
BUCKET_BYTES = 256
RATE = BUCKET_BYTES + 32
PAIR = {"min_workers": 2, "weights": "uniform"}


def home(n=N, *, stream=True, **spec):
    """A server whose model is ``n`` zeros, in buckets of 64 values, which it streams."""
    # A hand says nothing by itself.
    spec = {"bucket_bytes": BUCKET_BYTES, "work": "fixed:1", "lease_s": 300.0} | spec
    if stream:
        spec["stream_bytes"] = spec["bucket_bytes"]
    return cluster(n, **spec)


def parts(value, n=N):
    """An update of one value in buckets."""
    return list(np.full((n // 64, 64), value, np.float32))


def model(event):
    """The flat vector that a MODEL message brought, whatever the order of its buckets."""
    assert event.kind is Kind.MODEL
    versions = {part.header.version for part in event.parts}
    assert versions == {event.body.version}
    inorder = sorted(event.parts, key=lambda part: part.header.key)
    return np.concatenate([np.frombuffer(part.payload, np.float32) for part in inorder])


def ahead(house):
    return count(house, "chunks_ahead")


def unforeseen(house):
    return count(house, "rounds_unforeseen")


class History:
    """Every version that a server publishes, as a flat vector; a model that is none of them was never to be adopted."""

    def __init__(self, house):
        service = house.server.service
        store, finish = service.store, service.store.finish
        self.versions = {0: store.vector()}

        def finished(jobs):
            error = finish(jobs)
            if error is None:
                self.versions[service.engine.version + 1] = store.vector()
            return error

        store.finish = finished

    def holds(self, event):
        """Whether a MODEL message brought exactly the version that it names."""
        np.testing.assert_array_equal(model(event), self.versions[event.body.version])
        return True
