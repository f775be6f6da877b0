"""The kernels suite: every contender runs, and those of one case give the same."""

import numpy as np
import pytest

from aiops import kernels
from aiops.bench.kernel import coding, dense, index, select, sparse
from aiops.bench.kernel.base import BOUNDS, Data, Native
from aiops.bench.peers.base import Skipped
from aiops.bench.result import Figure, Row, encode
from aiops.bench.run import Bench
from aiops.bench.suites import kernels as suite

N = 20_000


class Silent:
    def say(self, text):
        pass

    warn = say


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    try:
        return Native(str(tmp_path_factory.mktemp("bounds")))
    except Skipped as error:
        pytest.skip(str(error))


@pytest.fixture
def data(native):
    return Data(N, native)


async def test_every_case_has_ours_and_every_goal_a_contender(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setattr("aiops.bench.harness.SHORTEST_SAMPLE_S", 1e-9)
    lines = []
    await suite.run(Bench(Silent(), lines.append, scratch=str(tmp_path), quick=True), sizes=(N,))
    rows = [line for line in lines if isinstance(line, Row)]
    assert all(map(encode, lines))
    cases = {}
    for row in rows:
        cases.setdefault(row.case, {})[row.peer] = row
    assert len(cases) > 50
    for name, peers in cases.items():
        assert name.endswith(f"n = {N:,}")
        assert len(peers) > 1, name
        assert peers["aiops"].ratio == 1
        if peers["aiops"].goal.startswith("<="):
            assert any(bound in peers for bound in BOUNDS) or not any(
                row.bound_ratio for row in rows
            )
    assert sum(bool(row.goal) for row in rows) > 60
    assert [line.unit for line in lines if isinstance(line, Figure)] == ["times the entropy"] * 6


def test_selections_have_the_same_magnitudes(data):
    pytest.importorskip("torch")
    x, k = data.normal(), N // 100
    found = select.topk(data, x, k)
    magnitudes = [
        np.sort(np.abs(found["ours"]()[1])),
        np.sort(np.abs(x[found["numpy"]()])),
        np.sort(found["torch"]().values.numpy()),
    ]
    np.testing.assert_array_equal(magnitudes[0], magnitudes[1])
    np.testing.assert_array_equal(magnitudes[0], magnitudes[2])


def test_a_step_of_feedback_moves_the_same(data):
    pytest.importorskip("torch")
    for apart in (False, True):
        found = select.feedback(data, N // 100, apart=apart)
        moved = [np.sort(found["ours"]().value)]
        moved += [np.sort(np.asarray(found[name]())) for name in ("numpy", "torch")]
        np.testing.assert_array_equal(moved[0], moved[1])
        np.testing.assert_array_equal(moved[0], moved[2])


def test_compressed_pushes_hold_the_same_positions_and_values(data):
    pytest.importorskip("torch")
    found = select.compress(data, 0.01)
    for _ in range(3):
        (_, code, bits), (numpy_code, numpy_half), (torch_code, torch_half) = (
            found[name]() for name in ("ours", "numpy", "torch")
        )
        positions = kernels.decode_index(code, bits.size, N)
        for theirs, half in ((numpy_code, numpy_half), (torch_code, torch_half.numpy())):
            np.testing.assert_array_equal(index.from_varint(theirs), positions)
            np.testing.assert_array_equal(half, bits.view(np.float16))


@pytest.mark.parametrize("density", [0.0, 0.001, 0.1, 1.0])
def test_varints_come_back_in_numpy_and_in_c(data, native, density):
    positions = data.positions(density)
    code = index.varint(positions)
    np.testing.assert_array_equal(index.from_varint(code), positions)
    room, back = np.zeros(5 * positions.size + 1, np.uint8), np.empty_like(positions)
    assert native.varint(positions, room) == code.size
    np.testing.assert_array_equal(room[: code.size], code)
    native.from_varint(code, back)
    np.testing.assert_array_equal(back, positions)


def test_varints_of_wide_gaps_come_back(native):
    positions = np.array([127, 128, 2**14, 2**21 + 2**14, 2**28, 2**32 - 1], np.uint32)
    code, back = index.varint(positions), np.empty_like(positions)
    np.testing.assert_array_equal(index.from_varint(code), positions)
    native.from_varint(code, back)
    np.testing.assert_array_equal(back, positions)


@pytest.mark.parametrize("kind", sparse.KINDS.values(), ids=sparse.KINDS)
@pytest.mark.parametrize("coded", [False, True])
def test_what_the_wire_has_adds_up_to_the_same(data, kind, coded):
    pytest.importorskip("torch")
    acc = np.zeros(N, np.float32)
    data.zeros = lambda: acc
    found, results = sparse.from_the_wire(data, 0.1, kind, coded=coded), []
    for name in ("ours", "numpy", "torch"):
        acc[:] = 0
        found[name]()
        results.append(acc.copy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)


@pytest.mark.parametrize("count", [2, 8])
def test_merged_pushes_are_the_same(data, count):
    found = sparse.merge_sparse(data, 0.1, count)
    merged, (positions, values) = found["ours"](), found["numpy"]()
    k = merged if isinstance(merged, int) else len(merged[0])
    assert k == positions.size
    if "scipy" in found:
        theirs = found["scipy"]()
        np.testing.assert_array_equal(theirs.indices, positions)
        np.testing.assert_allclose(theirs.data, values, rtol=1e-4, atol=1e-6)
    if "torch" in found:
        np.testing.assert_array_equal(found["torch"]().indices()[0].numpy(), positions)


class Recorder(Data):
    """Remembers what it gave away to be written to."""

    def own(self, number=0):
        return self.given_away(super().own(number))

    def zeros(self):
        return self.given_away(super().zeros())

    def given_away(self, array):
        self.given = [*getattr(self, "given", []), array]
        return array


def untouched(make):
    recorder = Recorder(N, None)
    make(recorder)
    return recorder.given[0]


@pytest.mark.parametrize(
    "make",
    [
        dense.lerp,
        dense.sgd,
        dense.swap_update,
        dense.weighted_add,
        coding.add_int8,
        lambda data: coding.add_half(data, "float16"),
    ],
)
def test_dense_contenders_do_the_same(data, make):
    pytest.importorskip("torch")
    results = {}
    for name in ("ours", "numpy", "torch"):
        recorder = Recorder(N, None)
        make(recorder)[name]()
        results[name] = recorder.given[0]
    assert not np.array_equal(results["ours"], untouched(make))
    np.testing.assert_allclose(results["ours"], results["numpy"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["ours"], results["torch"], rtol=1e-5, atol=1e-6)


def test_the_stream_reads_and_writes_what_it_is_told(data):
    x, y, out = data.normal(0), data.normal(1), data.zeros()
    data.native.stream([out], [x, y])()
    np.testing.assert_array_equal(out, x + y)
