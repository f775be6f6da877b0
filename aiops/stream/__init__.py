"""Streams: sources of records that arrive whether or not a worker is ready, and what it holds of them.

After "ScaDLES: Scalable Deep Learning over Streaming data at the Edge" (Tyagi and Swany, 2022).
"""
