import numpy as np
import numpy.typing as npt

def index_bytes(k: int, n: int) -> int: ...
def encode_index(
    index: npt.NDArray[np.uint32],
    n: int,
    out: npt.NDArray[np.uint8],
    level: int = -1,
) -> int: ...
def decode_index(
    code: npt.NDArray[np.uint8],
    n: int,
    out: npt.NDArray[np.uint32],
    level: int = -1,
) -> int: ...
def check_index(
    code: npt.NDArray[np.uint8],
    k: int,
    n: int,
    level: int = -1,
) -> int: ...
