"""``aiops lab``: methods side by side over slow links and unequal machines, over seeds, with intervals."""

from __future__ import annotations

import click

from aiops.cli.lab_compare import compare
from aiops.cli.lab_run import run_scenario
from aiops.cli.lab_tune import tune


@click.group()
def lab() -> None:
    """Compare training methods on one scenario: who trains what over which links.

    A scenario is a TOML file (examples/lab/wan.toml). The virtual lab runs the shipped server, client and policies
    with real gradients on a virtual clock, the same numbers each time; the real lab runs a process per worker over
    emulated links, in real time.
    """


for verb in (run_scenario, compare, tune):
    lab.add_command(verb)
