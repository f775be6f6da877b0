"""AR-Topk and its relatives: gradients that are exchanged by collectives of torch.distributed.

After "Flexible Communication for Optimal Distributed Learning over Unpredictable Networks" (Tyagi and Swany, 2023).
Everything but :mod:`aiops.collective.group` and what is built on it works without torch.
"""
