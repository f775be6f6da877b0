"""The two doors into the house: connecting and serving. A worker does not load the server's rooms, nor the reverse."""
