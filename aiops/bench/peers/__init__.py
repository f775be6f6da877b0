"""One file per library: how a push, a sum and a pull are done with it. See ``base`` for the door they all have."""
