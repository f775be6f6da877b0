"""The kernels suite: every contender runs, and those of one case give the same."""

import numpy as np
import pytest

from aiops import kernels
from aiops.bench.kernel import coding, dense, histogram, index, select, sparse
from aiops.bench.kernel.__main__ import SHORTEST
from aiops.bench.kernel.__main__ import main as kernel_main
from aiops.bench.kernel.base import BOUNDS, Data, Native, scipy_sparse, torch
from aiops.bench.peers.base import Skipped
from aiops.bench.result import Figure, Miss, Row, encode
from aiops.bench.run import Bench
from aiops.bench.suites import kernels as suite
from aiops.kernels.histogram import BLOCK

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


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr("aiops.bench.harness.SHORTEST_SAMPLE_S", 1e-9)


@pytest.mark.usefixtures("hurried")
async def test_every_case_is_measured_and_everything_can_be_written(tmp_path):
    lines = []
    await suite.run(Bench(Silent(), lines.append, scratch=str(tmp_path), quick=True), sizes=[N])
    assert all(map(encode, lines))
    rows = [line for line in lines if isinstance(line, Row)]
    assert len({row.case for row in rows}) > 50
    assert all(row.case.endswith(f"n = {N:,}") for row in rows)
    assert sum(bool(row.goal) for row in rows) > 60
    assert [line.unit for line in lines if isinstance(line, Figure)] == ["times the entropy"] * 12


@pytest.mark.usefixtures("hurried")
async def test_without_a_compiler_there_is_no_bound(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda name: None)
    lines = []
    bench = Bench(Silent(), lines.append, scratch=str(tmp_path), quick=True)
    await suite.run(bench, sizes=[N], names=["lerp"])
    assert {line.case for line in lines if isinstance(line, Row)} == {f"lerp, n = {N:,}"}
    assert not any(line.bound_ratio for line in lines if isinstance(line, Row))
    told = [line.reason for line in lines if isinstance(line, Miss)]
    assert "there is no C compiler (cc)" in told


async def test_vectors_that_memory_has_no_room_for_are_told_of(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "available_bytes", lambda: 48 * N - 1)
    lines = []
    await suite.run(Bench(Silent(), lines.append, scratch=str(tmp_path)), sizes=[N], names=["lerp"])
    assert not any(isinstance(line, Row) for line in lines)
    assert {line.case for line in lines if line.reason.startswith("there are only")} == {
        f"n = {N:,}"
    }


def test_every_goal_has_its_contender(data):
    missing = {
        name
        for name, module in (("torch", torch), ("torch mv", torch), ("scipy", scipy_sparse))
        if module is None
    }
    seen = set()
    for _, _, cases in suite.FAMILIES:
        for case in cases(data):
            found = case.make()
            assert len(found) > 1
            assert set(case.goals) <= set(found) | missing, case.name
            assert "ours" not in case.goals or set(found) & set(BOUNDS)
            assert case.name not in seen
            seen.add(case.name)


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


def test_histograms_are_the_same(data):
    found = histogram.histogram(data, 1)
    (counts, energies), (numpy_counts, numpy_energies) = found["ours"](), found["numpy"]()
    np.testing.assert_array_equal(counts, numpy_counts)
    np.testing.assert_allclose(energies, numpy_energies, rtol=1e-12)


def test_samples_for_histograms_are_of_one_size(data):
    # To the last block, which one of them cuts.
    found = histogram.histogram(data, 5)
    ours, theirs = (found[name]()[0].sum() for name in ("ours", "numpy"))
    assert theirs == N // 5
    assert abs(int(ours) - theirs) < BLOCK


@pytest.mark.parametrize("code", index.CODES, ids=lambda code: code.name)
def test_codes_of_positions_come_back(data, code):
    positions = data.positions(0.1)
    back = index.decode(data, positions, code)
    for run in back.values():
        run()
    np.testing.assert_array_equal(back["ours"](), positions)
    np.testing.assert_array_equal(back["numpy"](), positions)
    found = index.encode(data, positions, code)
    assert found["ours"]().size <= code.most(positions.size, N)
    assert found["numpy"]().size > found["ours"]().size


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "no case has 'nope' in its name"),
        (["lerp", "--n", "0"], "'0' is no length of at least 1000"),
        (["lerp", "--n", "999"], "'999' is no length of at least 1000"),
        (["lerp", "--n", "many"], "'many' is no length"),
    ],
)
def test_cases_and_lengths_that_are_none_are_refused(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", ["aiops.bench.kernel", *arguments])
    with pytest.raises(SystemExit) as ended:
        kernel_main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_shortest_vector_will_do_for_every_case(native):
    data = Data(SHORTEST, native)
    for _, _, cases in suite.FAMILIES:
        for case in cases(data):
            for run in case.make().values():
                run()
