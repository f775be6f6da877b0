import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops import kernels
from aiops.kernels import _backend, reference
from tests.kernels.kit import position_sets

LEVELS = range(_backend.topk.simd_level() + 1) if kernels.COMPILED else []
BLOCK = 512


def encoders():
    yield reference.encode_index
    for level in LEVELS:
        yield lambda *args, level=level: _backend.index.encode_index(*args, level=level)


def decoders():
    yield reference.decode_index
    for level in LEVELS:
        yield lambda *args, level=level: _backend.index.decode_index(*args, level=level)


def checkers():
    yield reference.check_index
    for level in LEVELS:
        yield lambda *args, level=level: _backend.index.check_index(*args, level=level)


def decoded_by_all(code, k, n):
    """What every twin finds: the same verdict, and the same positions where it is good."""
    verdicts, found = set(), []
    for decode in decoders():
        out = np.zeros(k + 2, np.uint32)
        verdicts.add(decode(code, n, out[1:-1]))
        assert out[0] == out[-1] == 0, "written outside"
        found.append(out[1:-1])
    verdicts |= {check(code, k, n) for check in checkers()}
    assert len(verdicts) == 1, verdicts
    (verdict,) = verdicts
    if verdict == -1:
        for positions in found:
            np.testing.assert_array_equal(positions, found[0])
    return verdict, found[0]


def assert_round_trip(index, n):
    index = np.asarray(index, np.uint32)
    size = kernels.index_bytes(index.size, n)
    assert size == reference.index_bytes(index.size, n)
    codes = []
    for encode in encoders():
        memory = np.full(size + 16, 0xA5, np.uint8)
        assert encode(index, n, memory[8:-8]) == -1
        assert (memory[:8] == 0xA5).all(), "written before the code"
        assert (memory[-8:] == 0xA5).all(), "written behind the code"
        codes.append(memory[8:-8].tobytes())
    assert len(set(codes)) == 1
    verdict, found = decoded_by_all(np.frombuffer(codes[0], np.uint8), index.size, n)
    assert verdict == -1
    np.testing.assert_array_equal(found, index)


def spread(k, n, seed=0):
    """Positions like those of the largest of n independent values."""
    generator = np.random.default_rng([seed, k, n])
    if k > n // 3:
        return np.sort(generator.permutation(n)[:k])
    some = np.unique(generator.integers(0, n, 2 * k + 10))
    return np.sort(generator.choice(some, k, replace=False))


@given(position_sets())
def test_round_trip(case):
    assert_round_trip(*case)


@pytest.mark.parametrize(
    "k",
    [1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 511, 512, 513, 639, 640, 641, 1030, 1152, 1153, 5000],
)
@pytest.mark.parametrize("gap", [1, 2, 3, 5, 10, 20, 50, 100, 150, 256, 300, 70_000, 800_000])
def test_round_trip_at_every_density(k, gap):
    assert_round_trip(spread(k, k * gap), k * gap)


@pytest.mark.parametrize(
    ("index", "n"),
    [
        pytest.param([], 0, id="nothing of nothing"),
        pytest.param([], 10, id="none"),
        pytest.param([0], 1, id="all of one"),
        pytest.param([2**32 - 1], 2**32, id="the last of all"),
        pytest.param([0, 2**32 - 1], 2**32, id="first and last"),
        pytest.param(range(1000), 1000, id="all"),
        pytest.param(range(1000), 10**6, id="a clump in front"),
        pytest.param(range(10**6 - 1000, 10**6), 10**6, id="a clump at the end"),
        pytest.param([*range(600), *range(10**9, 10**9 + 600)], 2**31, id="two clumps, far apart"),
        pytest.param([5 * i + 10**8 * (i // 40) for i in range(1200)], 2**32, id="many clumps"),
    ],
)
def test_round_trip_of_uneven_positions(index, n):
    assert_round_trip(index, n)


@pytest.mark.parametrize("seed", range(20))
def test_round_trip_of_clumps_among_even_positions(seed):
    generator = np.random.default_rng(seed)
    gaps = generator.integers(1, 20, 3000)
    # Eight positions in a row that span more than a word of the bitmap, here and there.
    far = generator.random(3000) < generator.choice([0.001, 0.01, 0.1])
    gaps[far] = generator.integers(500, 50_000, np.count_nonzero(far))
    index = np.cumsum(gaps)
    assert_round_trip(index, int(index[-1]) + int(generator.choice([1, 70, 10_000])))


def test_the_code_is_fixed_for_ever():
    # n / k = 25: four low bits. High parts 0, 0, 2, 6 set bits 0, 1, 4 and 9 of a 64-bit word.
    code = kernels.encode_index(np.array([3, 9, 37, 99], np.uint32), 100)
    assert code.tobytes() == b"\x13\x02\0\0\0\0\0\0" + b"\x93\x35\0\0" + b"\0\0\0\0"
    # n / k = 5000: twelve low bits, four of them packed, eight in a plane. High parts 0 and 2.
    code = kernels.encode_index(np.array([0xABC, 0x2123], np.uint32), 10_000)
    assert code.tobytes() == b"\x09\0\0\0\0\0\0\0" + b"\x3c\0\0\0" + b"\xab\x12" + b"\0\0"


@pytest.mark.parametrize(("density", "most"), [(0.001, 1.1), (0.01, 1.1), (0.1, 1.2), (0.3, 1.3)])
def test_the_size_is_near_the_entropy(density, most):
    n = 10**6
    bits = -(density * np.log2(density) + (1 - density) * np.log2(1 - density)) * n
    assert bits / 8 < kernels.index_bytes(int(density * n), n) < most * bits / 8


def test_the_size_needs_no_more_than_positions_as_they_are():
    for n in [1, 17, 10**4, 2**31 + 8, 2**32]:
        for k in {1, 2, 3, n // 10**6, n // 1000, n // 10, n // 2, n}:
            if 0 < k <= n:
                assert kernels.index_bytes(k, n) <= max(4 * k, 64)


@pytest.mark.parametrize(
    ("index", "at"),
    [
        ([5, 5], 1),
        ([5, 4], 1),
        ([0, 1, 2, 1000], 3),
        ([1000, 0], 0),
        ([2**32 - 1], 0),
        ([*range(600), 599, 1000], 600),
        ([*range(600), 1000, 2], 600),
        ([*range(511), 510], 511),
        ([*range(512), 511], 512),
    ],
)
def test_what_does_not_ascend_or_is_outside_is_not_encoded(index, at):
    index = np.array(index, np.uint32)
    for encode in encoders():
        out = np.zeros(kernels.index_bytes(index.size, 1000), np.uint8)
        assert encode(index, 1000, out) == at
    with pytest.raises(ValueError, match=rf"index\[{at}\] is {index[at]}, it must be .*below 1000"):
        kernels.encode_index(index, 1000)


@pytest.mark.parametrize("at", [1, 7, 8, 63, 64, 65, 127, 128, 575, 576, 639, 640, 700, 1299])
def test_the_first_position_that_does_not_ascend_is_named(at):
    index = np.arange(0, 13_000, 10, dtype=np.uint32)
    for wrong in (index[at - 1], index[at - 1] - 10 if at > 1 else 0, 2**32 - 1):
        hostile = index.copy()
        hostile[at] = wrong
        for encode in encoders():
            out = np.zeros(kernels.index_bytes(index.size, 13_000), np.uint8)
            assert encode(hostile, 13_000, out) == at


def test_every_flipped_bit_is_refused_or_gives_other_positions():
    for k, n in [(40, 100), (40, 1000), (20, 10**5), (17, 17)]:
        index = spread(k, n)
        code = kernels.encode_index(index.astype(np.uint32), n)
        for bit in range(8 * code.size):
            hostile = code.copy()
            hostile[bit // 8] ^= 1 << bit % 8
            verdict, found = decoded_by_all(hostile, k, n)
            if verdict == -1:
                assert (np.diff(found.astype(np.int64)) > 0).all()
                assert found[-1] < n
                assert (found != index).any(), "two codes for the same positions"


@given(st.data())
def test_any_bytes_give_ascending_positions_or_an_error(data):
    k, n = data.draw(st.sampled_from([(1, 1), (3, 10), (20, 40), (9, 1000), (5, 10**6), (64, 70)]))
    size = kernels.index_bytes(k, n)
    decoded_by_all(
        np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8), k, n
    )


@pytest.mark.parametrize("most", [5000, 10**6])
@pytest.mark.parametrize("seed", range(20))
def test_bitmaps_that_hold_k_bits_somewhere_stay_inside(seed, most):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, most))
    k = int(generator.integers(1, min(n + 1, 5000)))
    code = generator.integers(0, 256, kernels.index_bytes(k, n)).astype(np.uint8)
    at = reference.index.lay(k, n)
    bitmap = np.zeros(8 * at.packed, np.uint8)
    bitmap[generator.permutation(at.bits)[:k]] = 1
    code[: at.packed] = np.packbits(bitmap, bitorder="little")
    code[at.end :] = 0
    verdict, found = decoded_by_all(code, k, n)
    if verdict == -1:
        assert found[-1] < n
        assert (np.diff(found.astype(np.int64)) > 0).all()


def test_a_position_that_reaches_n_is_named():
    # Eleven positions below 91 have three low bits; the highest part, 11, allows 88 to 95.
    index = np.arange(0, 91, 9, dtype=np.uint32)
    code = kernels.encode_index(index, 91)
    at = reference.index.lay(index.size, 91)
    assert (at.low, index[-1]) == (3, 90)
    last = 3 * (index.size - 1)
    code[at.packed + last // 8] ^= 1 << last % 8
    assert decoded_by_all(code, index.size, 91)[0] == index.size - 1
    with pytest.raises(
        ValueError, match="position 10 of the index code is wrong, it must be above"
    ):
        kernels.check_index(code, index.size, 91)


def test_errors_are_told_by_the_face():
    code = kernels.encode_index(np.arange(0, 100, 10, dtype=np.uint32), 100)
    empty = np.zeros_like(code)
    with pytest.raises(ValueError, match="the index code does not hold 10 positions"):
        kernels.check_index(empty, 10, 100)
    behind = code.copy()
    behind[-1] = 1
    with pytest.raises(ValueError, match="the index code has bits set where none may be"):
        kernels.decode_index(behind, 10, 100)
    twice = kernels.encode_index(np.array([8, 9], np.uint32), 16)
    twice[reference.index.lay(2, 16).packed] = 0
    with pytest.raises(ValueError, match="position 1 of the index code is wrong, it must be above"):
        kernels.decode_index(twice, 2, 16)
    with pytest.raises(
        ValueError, match="code has 16 values, it must have 24, as 90 positions below"
    ):
        kernels.check_index(code, 90, 100)
    kernels.check_index(code, 10, 100)
    assert kernels.decode_index(code, 10, 100).tolist() == list(range(0, 100, 10))


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0), (1, -1), (0, 2**32 + 1)])
def test_sizes_out_of_range_are_refused(k, n):
    with pytest.raises(ValueError, match="it must be between 0 and"):
        kernels.index_bytes(k, n)
    with pytest.raises(ValueError, match="it must be between 0 and"):
        kernels.check_index(np.empty(0, np.uint8), k, n)


def test_the_blocks_of_a_reader_meet_at_any_bitmap_word():
    # Runs of ones of every length up to a word, so that blocks end at every place of a word.
    index = np.flatnonzero(np.repeat(np.arange(300) % 2, 1 + np.arange(300) % 64) == 0)
    assert index.size > 4 * BLOCK
    assert_round_trip(index, int(index[-1]) + 1)
    assert_round_trip(index * 7, 7 * int(index[-1]) + 5)
