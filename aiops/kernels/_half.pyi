import numpy as np
import numpy.typing as npt

def to_half(
    x: npt.NDArray[np.float32],
    bfloat: bool,
    out: npt.NDArray[np.uint16],
    level: int = -1,
) -> None: ...
def from_half(
    bits: npt.NDArray[np.uint16],
    bfloat: bool,
    out: npt.NDArray[np.float32],
    level: int = -1,
) -> None: ...
def add_half(
    acc: npt.NDArray[np.float32],
    bits: npt.NDArray[np.uint16],
    weight: float,
    bfloat: bool,
    level: int = -1,
) -> None: ...
def first_nonfinite_half(bits: npt.NDArray[np.uint16], bfloat: bool) -> int: ...
