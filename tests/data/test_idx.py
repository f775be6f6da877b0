from __future__ import annotations

import struct

import numpy as np
import pytest

from aiops.data import idx
from aiops.errors import ConfigError

HEADER = bytes((0, 0, 8, 2)) + struct.pack(">2I", 2, 3)


def test_the_header_gives_the_shape():
    array = idx.parse(HEADER + bytes(range(6)), source="a")
    assert array.dtype == np.uint8
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "a starts with ''", id="empty"),
        pytest.param(bytes((0, 0, 0x0D, 1)) + bytes(8), "a starts with '00000d01'", id="floats"),
        pytest.param(HEADER[:7], "a ends inside its header of 12 bytes", id="half a header"),
        pytest.param(HEADER + bytes(5), "a holds 5 elements, its header says 6", id="too short"),
        pytest.param(HEADER + bytes(7), "a holds 7 elements, its header says 6", id="too long"),
        pytest.param(
            bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 4),
            "its header says 18446744073709551616",
            id="a product that would wrap",
        ),
    ],
)
def test_a_file_that_contradicts_its_header_is_refused(content, message):
    with pytest.raises(ConfigError, match=message):
        idx.parse(content, source="a")
