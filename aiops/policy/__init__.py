"""Policies: the decisions of a server, asked and never acting."""
