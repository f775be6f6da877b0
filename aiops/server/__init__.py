"""The server: who is a member, when a round closes, what it adds up to, and who is told."""
