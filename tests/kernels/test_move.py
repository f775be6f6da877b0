"""Bytes are copied as they are, whatever they look like as numbers."""

import numpy as np
import pytest

from aiops.kernels import copy_bytes

SIZES = [0, 1, 3, 4, 63, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 4, 100_001, 300_000]


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("into", "out_of"), [(0, 0), (1, 0), (0, 1), (4, 8), (60, 0)])
def test_every_byte_arrives_and_no_other_is_touched(size, into, out_of, bypass):
    source = np.random.default_rng(size).integers(0, 256, size + out_of, np.uint8)
    target = np.full(size + into + 64, 7, np.uint8)
    copy_bytes(memoryview(target)[into : into + size], memoryview(source)[out_of:], bypass=bypass)
    assert np.array_equal(target[into : into + size], source[out_of:])
    assert (target[:into] == 7).all()
    assert (target[into + size :] == 7).all()


def test_bytes_that_are_no_finite_number_stay_what_they_are():
    bits = np.array([0x7F800001, 0xFFC00123, 0x7FA00000, 0x80000000, 1], np.uint32)
    source = np.tile(bits, 20_000)
    target = np.zeros_like(source)
    copy_bytes(memoryview(target).cast("B"), memoryview(source).cast("B"), bypass=True)
    assert np.array_equal(source, target)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("size", [8, 100_000])
def test_wrong_sizes_and_read_only_targets_are_refused(size, bypass):
    with pytest.raises(ValueError, match="different structures"):
        copy_bytes(memoryview(bytearray(size)), memoryview(bytes(size + 1)), bypass=bypass)
    with pytest.raises((ValueError, TypeError), match=r"read-?only"):
        copy_bytes(memoryview(bytes(size)), memoryview(bytes(size)), bypass=bypass)
