"""Processes on one machine, and the demo that runs on them."""
