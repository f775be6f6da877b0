"""Tensors of torch as they come: those with a gradient are taken, what numpy cannot read is refused by name."""

import numpy as np
import pytest

from aiops.errors import ShapeMismatch
from aiops.worker.bucket import as_array, check_start, specs_of

# At the top, since it takes seconds: no test's deadline is for that.
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_parameters_come_in_without_a_copy_whether_they_are_trained_or_not(dtype):
    for tensor in (
        torch.ones(3, dtype=getattr(torch, dtype)),
        torch.ones(3, dtype=getattr(torch, dtype), requires_grad=True),
        torch.nn.Parameter(torch.ones(3, dtype=getattr(torch, dtype))),
        torch.nn.Parameter(torch.ones(3, dtype=getattr(torch, dtype))) * 1,
    ):
        array = as_array("w", tensor)
        assert array.dtype.name == dtype
        assert array.ctypes.data == tensor.data_ptr()
        np.testing.assert_array_equal(array, 1)


ODD = {
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "bfloat16 that is trained": lambda: torch.ones(3, dtype=torch.bfloat16, requires_grad=True),
    "8 bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "no memory": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_numpy_cannot_read_is_refused_by_name_with_the_way_out(make):
    for take in (
        lambda t: as_array("w", t),
        lambda t: specs_of({"w": t}),
        lambda t: check_start({"w": t}),
    ):
        with pytest.raises(
            ShapeMismatch,
            match=r"tensor 'w' cannot be read by numpy \(.+\): "
            r"give it as dense float32 in main memory, in torch t\.float\(\)\.cpu\(\)$",
        ):
            take(make())


def test_the_way_out_is_one():
    array = as_array("w", ODD["bfloat16 that is trained"]().float().cpu())
    assert array.dtype == np.float32
