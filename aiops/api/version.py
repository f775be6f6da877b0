"""Which aiops this is."""

from __future__ import annotations

import functools


@functools.cache
def version() -> str:
    """Return the installed version; reading the metadata costs as much as importing us, so only when asked."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("aiops-ps")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
