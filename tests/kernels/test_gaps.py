import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops import kernels
from aiops.kernels import _backend, gaps, reference
from tests.kernels.kit import position_sets

FINE, OUTSIDE, ENDS, WIDTH, PADDING, BEHIND = range(6)

# The faces and what says how long a code may be, and the twins' names.
PACKED, RICE = (
    ((kernels.pack_index, kernels.unpack_index, kernels.packed_bytes_most), ("pack_index", "unpack_index")),
    ((kernels.rice_index, kernels.unrice_index, kernels.rice_bytes_most), ("rice_index", "unrice_index")),
)  # fmt: skip
both = pytest.mark.parametrize("kind", [PACKED, RICE], ids=["packed", "rice"])


def twins(name):
    return [getattr(reference, name), getattr(_backend.gaps, name)]


def encoded_by_all(kind, index, n):
    """The code, the same of every twin, no longer than it may be and written to its place alone."""
    (_, _, most), (encode, _) = kind
    index = np.asarray(index, np.uint32)
    room, codes = most(index.size, n), []
    for twin in twins(encode):
        memory = np.full(room + 16, 0xA5, np.uint8)
        size = twin(index, n, memory[8 : 8 + room])
        assert 0 <= size <= room
        assert (memory[:8] == 0xA5).all(), "written before the code"
        assert (memory[8 + size :] == 0xA5).all(), "written behind the code"
        codes.append(memory[8 : 8 + size].tobytes())
    assert len(set(codes)) == 1
    return np.frombuffer(codes[0], np.uint8)


def decoded_by_all(kind, code, k, n):
    """What every twin finds: the same verdict, and the same positions where it is good."""
    verdicts, found = set(), []
    for twin in twins(kind[1][1]):
        out = np.zeros(k + 2, np.uint32)
        # A copy of its own, so that a sanitizer sees a look behind its end.
        verdicts.add(twin(code.copy(), n, out[1:-1]))
        assert out[0] == out[-1] == 0, "written outside"
        found.append(out[1:-1].astype(np.int64))
    assert len(verdicts) == 1, verdicts
    (verdict,) = verdicts
    if verdict[0] == FINE:
        for positions in found:
            np.testing.assert_array_equal(positions, found[0])
        assert (np.diff(found[0], prepend=-1) > 0).all()
        assert k == 0 or found[0][-1] < n
    else:
        assert 0 <= verdict[1] < max(k, code.size + 1)
        with pytest.raises(ValueError, match="index code"):
            kind[0][1](code, k, n)
    return verdict, found[0]


def assert_round_trip(kind, index, n):
    index = np.asarray(index, np.uint32)
    code = encoded_by_all(kind, index, n)
    verdict, found = decoded_by_all(kind, code, index.size, n)
    assert verdict == (FINE, 0)
    np.testing.assert_array_equal(found, index)
    encode, decode, _ = kind[0]
    np.testing.assert_array_equal(encode(index, n), code)
    np.testing.assert_array_equal(decode(code, index.size, n), index)


def spread(density, n=10**6, seed=0):
    return np.flatnonzero(np.random.default_rng(seed).random(n) < density).astype(np.uint32)


@both
@given(case=position_sets(most=300))
def test_round_trip(kind, case):
    assert_round_trip(kind, *case)


@both
@given(lengths=st.lists(st.integers(0, 23), max_size=600), seed=st.integers(0, 99))
def test_round_trip_of_gaps_of_any_lengths(kind, lengths, seed):
    generator = np.random.default_rng(seed)
    index = np.cumsum([1 + generator.integers(0, 1 << length) for length in lengths], dtype=int) - 1
    n = int(index[-1]) + 1 if index.size else 0
    assert_round_trip(kind, index[index < 2**32], min(n, 2**32))


@both
@pytest.mark.parametrize("k", [1, 7, 8, 9, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1030])
@pytest.mark.parametrize("gap", [1, 2, 3, 5, 20, 150, 256, 70_000, 4_000_000])
def test_round_trip_at_every_density(kind, k, gap):
    n = k * gap
    index = np.random.default_rng([k, gap]).permutation(n)[:k] if n < 10**6 else np.arange(k) * gap
    assert_round_trip(kind, np.sort(index), n)


@both
@pytest.mark.parametrize(
    ("index", "n"),
    [
        pytest.param([], 0, id="nothing of nothing"),
        pytest.param([], 10, id="none"),
        pytest.param([0], 1, id="all of one"),
        pytest.param([2**32 - 1], 2**32, id="the last of all"),
        pytest.param([0, 2**32 - 1], 2**32, id="first and last"),
        pytest.param(range(1000), 1000, id="all"),
        pytest.param(range(10**6 - 1000, 10**6), 10**6, id="a clump at the end"),
        pytest.param([*range(255), 2**32 - 1], 2**32, id="one far from all others"),
        pytest.param([*range(600), *range(10**9, 10**9 + 600)], 2**31, id="two clumps, far apart"),
        pytest.param([5 * i + 10**8 * (i // 40) for i in range(1200)], 2**32, id="many clumps"),
    ],
)
def test_round_trip_of_uneven_positions(kind, index, n):
    assert_round_trip(kind, index, n)


def test_the_codes_are_fixed_for_ever():
    # Gaps 3, 5, 27 and 61: six bits each are 3 | 5 << 6 | 27 << 12 | 61 << 18.
    index = np.array([3, 9, 37, 99], np.uint32)
    assert kernels.pack_index(index, 100).tobytes() == b"\x06\x43\xb1\xf5"
    # Four lowest bits 3, 5, 11 and 13; units of 16 are 0, 0, 1 and 3: ones at 0, 1, 3 and 7.
    assert kernels.rice_index(index, 100).tobytes() == b"\x04\x53\xdb\x8b"
    # Nothing but a width for a run, and a bit for each after Rice.
    run = np.arange(130, dtype=np.uint32)
    assert kernels.pack_index(run, 130).tobytes() == b"\0\0"
    assert kernels.rice_index(run, 130).tobytes() == b"\0" + b"\xff" * 16 + b"\x03"


BITS = {
    0.1: (4.76, 6.19), 0.033: (6.41, 7.91), 0.011: (7.97, 9.43), 0.004: (9.49, 11), 0.001: (11.5, 13),
}  # fmt: skip


@pytest.mark.parametrize(("density", "bits"), BITS.items())
def test_bits_per_position_are_those_of_gaps_without_blocks(density, bits):
    rice, packed = bits
    index = spread(density, 4 * 10**6)
    size = 8 * kernels.rice_index(index, 4 * 10**6).size / index.size
    assert 0.97 * rice < size < 1.015 * rice
    size = 8 * kernels.pack_index(index, 4 * 10**6).size / index.size
    assert 0.985 * packed < size < 1.015 * packed


def test_clumps_take_less_than_the_code_that_knows_k_and_n_alone():
    n = 10**6
    index = np.concatenate([spread(0.2, n // 20), n // 2 + spread(0.001, n // 2)])
    index = index.astype(np.uint32)
    fixed = kernels.index_bytes(index.size, n)
    assert kernels.rice_index(index, n).size < 0.6 * fixed
    assert kernels.pack_index(index, n).size < 0.75 * fixed


def test_the_most_that_a_code_can_take_is_close():
    # A gap of 2 ** (width - 1) in each block is the worst for one code, equal gaps for the other.
    blocks, width = 50, 9
    gap = np.zeros(blocks * gaps.PACK_BLOCK, np.int64)
    gap[:: gaps.PACK_BLOCK] = 1 << width - 1
    index = np.cumsum(gap + 1) - 1
    n = int(index[-1]) + 1
    assert encoded_by_all(PACKED, index, n).size == kernels.packed_bytes_most(index.size, n)
    index = np.arange(2, 30_000, 3)
    most = kernels.rice_bytes_most(index.size, 30_000)
    assert 0.98 * most < encoded_by_all(RICE, index, 30_000).size <= most
    assert kernels.packed_bytes_most(0, 10) == kernels.rice_bytes_most(0, 10) == 0


@both
@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0), (1, -1), (0, 2**32 + 1)])
def test_sizes_out_of_range_are_refused(kind, k, n):
    (_, decode, most), _ = kind
    with pytest.raises(ValueError, match="it must be between 0 and"):
        most(k, n)
    with pytest.raises(ValueError, match="it must be between 0 and"):
        decode(np.empty(0, np.uint8), k, n)


@both
@pytest.mark.parametrize(
    ("index", "at"),
    [
        ([5, 5], 1),
        ([5, 4], 1),
        ([0, 1, 2, 1000], 3),
        ([1000, 0], 0),
        ([2**32 - 1], 0),
        ([*range(128), 127], 128),
        ([*range(256), 255], 256),
        ([*range(600), 1000, 2], 600),
    ],
)
def test_what_does_not_ascend_or_is_outside_is_not_encoded(kind, index, at):
    (encode, _, most), (name, _) = kind
    index = np.array(index, np.uint32)
    for twin in twins(name):
        assert twin(index, 1000, np.zeros(most(index.size, 1000), np.uint8)) == -1 - at
    with pytest.raises(ValueError, match=rf"index\[{at}\] is {index[at]}, it must be .*below 1000"):
        encode(index, 1000)


@both
def test_the_code_is_the_beginning_of_the_callers_array(kind):
    (encode, decode, most), _ = kind
    index = spread(0.01, 10**5)
    room = np.zeros(most(index.size, 10**5) + 3, np.uint8)
    code = encode(index, 10**5, room)
    assert np.shares_memory(code, room)
    np.testing.assert_array_equal(code, encode(index, 10**5))
    out = np.empty_like(index)
    assert decode(code, index.size, 10**5, out) is out
    with pytest.raises(
        ValueError, match=rf"out has 5 values, it must have at least {room.size - 3}"
    ):
        encode(index, 10**5, np.empty(5, np.uint8))


@both
@given(data=st.data())
def test_any_bytes_give_ascending_positions_or_an_error(kind, data):
    k = data.draw(st.sampled_from([0, 1, 3, 20, 128, 129, 257, 300]))
    n = k + data.draw(st.sampled_from([0, 1, 40, 10**4, 2**31]))
    decoded_by_all(kind, np.frombuffer(data.draw(st.binary(max_size=80)), np.uint8), k, n)


@both
@pytest.mark.parametrize("seed", range(30))
def test_a_changed_code_gives_ascending_positions_or_an_error(kind, seed):
    generator = np.random.default_rng(seed)
    density = generator.choice([0.5, 0.1, 0.01, 0.001])
    n = int(300 / density)
    index = spread(density, n, seed)
    code = encoded_by_all(kind, index, n)
    for _ in range(40):
        hostile = code.copy()
        for at in generator.integers(0, code.size, generator.integers(1, 4)):
            hostile[at] = generator.integers(0, 256)
        hostile = hostile[: generator.integers(0, code.size + 1)] if seed % 3 == 0 else hostile
        limit = int(generator.integers(index.size, 2 * n))
        decoded_by_all(kind, hostile, index.size, limit)


@both
def test_every_flipped_bit_is_refused_or_gives_ascending_positions(kind):
    index = spread(0.05, 6000)
    code = encoded_by_all(kind, index, 6000)
    verdicts = set()
    for bit in range(8 * code.size):
        hostile = code.copy()
        hostile[bit // 8] ^= 1 << bit % 8
        verdicts.add(decoded_by_all(kind, hostile, index.size, 6000)[0][0])
    assert verdicts >= {OUTSIDE, ENDS, WIDTH}


@both
def test_a_code_that_is_cut_or_goes_on_is_refused(kind):
    index = spread(0.05, 6000)
    code = encoded_by_all(kind, index, 6000)
    for size in range(code.size):
        verdict, _ = decoded_by_all(kind, code[:size], index.size, 6000)
        assert verdict[0] == ENDS
    longer = np.concatenate([code, np.zeros(3, np.uint8)])
    assert decoded_by_all(kind, longer, index.size, 6000)[0] == (BEHIND, 3)
    assert decoded_by_all(kind, code, 0, 6000)[0] == (BEHIND, code.size)


@pytest.mark.parametrize(
    ("kind", "code", "k", "n", "verdict", "message"),
    [
        (PACKED, [], 1, 9, (ENDS, 0), "the index code ends within the block of position 0"),
        (PACKED, [33], 1, 9, (WIDTH, 0), "has no width that may be before position 0"),
        (PACKED, [0, 33], 129, 999, (WIDTH, 128), "has no width that may be before position 128"),
        (PACKED, [32, 255, 255, 255, 255], 1, 2**32, (FINE, 0), ""),
        (PACKED, [32] + [255] * 8, 2, 2**32, (OUTSIDE, 1), "position 1 of the index code is not"),
        (PACKED, [32] + [255] * 4, 1, 2**32 - 1, (OUTSIDE, 0), f"is not below {2**32 - 1}"),
        (PACKED, [3, 0b1000], 1, 9, (PADDING, 0), "bits set where none may be in the block of"),
        (PACKED, [0, 7], 1, 9, (BEHIND, 1), "goes on for 1 bytes behind the last position"),
        (RICE, [32], 1, 9, (WIDTH, 0), "has no width that may be before position 0"),
        (RICE, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1, 99, (FINE, 0), ""),
        (RICE, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1, 72, (OUTSIDE, 0), "is not below 72"),
        (RICE, [31] + [0] * 90 + [1], 1, 2**32, (OUTSIDE, 0), "position 0 of the index code"),
        (RICE, [0, 0b101], 3, 99, (ENDS, 2), "ends within the block of position 2"),
        (RICE, [0, 0b111], 2, 99, (PADDING, 0), "bits set where none may be in the block of"),
        (RICE, [3, 0b1000, 1], 1, 99, (PADDING, 0), "bits set where none may be in the block of"),
        (RICE, [3, 0], 1, 99, (ENDS, 0), "ends within the block of position 0"),
        (RICE, [0, 1, 1], 1, 99, (BEHIND, 1), "goes on for 1 bytes behind the last position"),
    ],
)
def test_what_is_wrong_with_a_code_is_told(kind, code, k, n, verdict, message):
    code = np.array(code, np.uint8)
    assert decoded_by_all(kind, code, k, n)[0] == verdict
    if message:
        with pytest.raises(ValueError, match=message):
            kind[0][1](code, k, n)
