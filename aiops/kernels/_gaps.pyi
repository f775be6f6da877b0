import numpy as np
import numpy.typing as npt

def pack_index(
    index: npt.NDArray[np.uint32],
    n: int,
    out: npt.NDArray[np.uint8],
) -> int: ...
def unpack_index(
    code: npt.NDArray[np.uint8],
    n: int,
    out: npt.NDArray[np.uint32],
) -> tuple[int, int]: ...
def rice_index(
    index: npt.NDArray[np.uint32],
    n: int,
    out: npt.NDArray[np.uint8],
) -> int: ...
def unrice_index(
    code: npt.NDArray[np.uint8],
    n: int,
    out: npt.NDArray[np.uint32],
) -> tuple[int, int]: ...
