"""The laboratory: algorithms measured on emulated wide-area networks."""
