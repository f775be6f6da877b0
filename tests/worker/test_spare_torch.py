"""Tensors of torch over a vector keep it from being used again."""

import gc

import pytest

from aiops.worker.spare import KEPT, Spares

# At the top, since it takes seconds: no test's deadline is for that.
torch = pytest.importorskip("torch")


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("make", ["from_numpy", "as_tensor", "from_dlpack"])
def test_a_tensor_keeps_its_vector_from_being_used_again(make):
    spares = Spares(1000)
    vector = spares.take()
    first, tensor = address(vector), getattr(torch, make)(vector[10:20])
    view = tensor[2:4].detach().view(1, 2)
    del vector, tensor
    gc.collect()
    others = [spares.take() for _ in range(KEPT + 2)]
    assert first not in {address(other) for other in others}
    del view
    gc.collect()
    assert address(spares.take()) == first
