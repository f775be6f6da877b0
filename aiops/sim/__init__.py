"""Simulation: virtual time, clusters inside one loop, emulated links."""
