"""The worker: tickets over a link that mends itself, and the loops that train with them."""
