"""Gradients whose gains are known."""

from __future__ import annotations

import numpy as np

from aiops.policy.exchange import Spectrum


def spectrum(power=0.25, scale=1.0):
    """Return one whose gain is density**power, with edges a tenth of a decade apart."""
    shares = 10.0 ** -np.arange(0, 5.05, 0.1)
    counts, energies = -np.diff([*shares, 0.0]), -np.diff([*shares**power, 0.0])
    return Spectrum(np.round(counts * 1e9).astype(np.int64), energies * scale)
