import numpy as np
import numpy.typing as npt

def to_int8(
    x: npt.NDArray[np.float32],
    residual: npt.NDArray[np.float32] | None,
    scales: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int8],
    left: npt.NDArray[np.float32] | None,
    level: int = -1,
) -> int: ...
def add_int8(
    acc: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int8],
    weight: float,
    level: int = -1,
) -> None: ...
def first_code(codes: npt.NDArray[np.int8], code: int) -> int: ...
