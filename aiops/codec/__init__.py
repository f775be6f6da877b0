"""Codecs: from a bucket's update to payload bytes and back into an accumulator."""
