"""Connections that carry frames: TCP on any asyncio loop, and memory for tests and simulations."""
