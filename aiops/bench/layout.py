"""How a number of bytes is cut into tensors."""

from __future__ import annotations

from collections.abc import Iterator

from aiops.bench.peers.base import Case

RESNET50_VALUES = 25_557_032


def sizes(case: Case) -> list[int]:
    """Return how many values each tensor of a case has; they add up to ``case.n_values``."""
    if case.layout == "one":
        return [case.n_values]
    if case.layout == "resnet50":
        return list(resnet50())
    count = int(case.layout)
    each, more = divmod(case.n_values, count)
    return [each + (i < more) for i in range(count)]


def resnet50() -> Iterator[int]:
    """Yield the sizes of ResNet-50's 161 tensors (He et al., 2015), in the order of the layers."""
    yield from (64 * 3 * 7 * 7, 64, 64)
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from (channels * width, width, width)
            yield from (width * width * 9, width, width)
            yield from (width * 4 * width, 4 * width, 4 * width)
            if block == 0:
                yield from (channels * 4 * width, 4 * width, 4 * width)
            channels = 4 * width
    yield from (1000 * channels, 1000)
