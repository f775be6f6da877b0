"""Bytes to messages and back, sans-IO: no socket, no clock, no event loop."""
