"""``aiops demo``: see overlap win, on this machine, in under three minutes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from aiops.cli.demo_view import View, make_view, table
from aiops.cli.run import Signals, TargetMissed, run
from aiops.cli.tensors import check_place
from aiops.data import NAMES, is_available
from aiops.errors import ConfigError

if TYPE_CHECKING:
    from aiops.launch.demo_job import Report
    from aiops.launch.demo_settings import DemoSettings

PICTURES = (".png", ".svg", ".pdf")


@click.command()
@click.option("--data", type=click.Choice(NAMES), help="Data set; fashion-mnist where it is found.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="AIOPS_DATA_DIR",
    help="Where its files are.  [env: AIOPS_DATA_DIR]",
)
@click.option("--workers", type=int, default=4, show_default=True, help="Worker processes.")
@click.option(
    "--slowdown",
    default="4",
    show_default=True,
    help="How much slower the last worker is; or one factor per worker: 1,1,2,4.",
)
@click.option("--rate-mbit", type=float, default=20.0, show_default=True, help="Rate of each link.")
@click.option("--delay-ms", type=float, default=25.0, show_default=True, help="One-way delay.")
@click.option("--step-ms", type=float, default=20.0, show_default=True, help="A fast local step.")
@click.option(
    "--fedavg-steps", type=int, help="FedAvg's local steps a round.  [default: 40; quick 10]"
)
@click.option(
    "--merge",
    default="partial:0.5",
    show_default=True,
    help="NBSync's merge rule; reset is its authors'.",
)
@click.option("--lr", type=float, default=0.1, show_default=True, help="Learning rate.")
@click.option("--alpha", type=float, default=0.3, show_default=True, help="Label skew (Dirichlet).")
@click.option("--target", type=float, help="Accuracy to reach.  [default: 0.76; digits 0.9]")
@click.option(
    "--budget-s", type=float, help="Seconds for each algorithm.  [default: 60; quick 3.5]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of model and batches.")
@click.option("--quick", is_flag=True, help="Digits, no emulated link, 20 s in all.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for programs.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    default=Path("demo.png"),
    show_default=True,
    help="Where the picture goes.",
)
def demo(
    *,
    quick: bool,
    as_json: bool,
    picture: Path,
    **options: Any,  # noqa: ANN401 -- click passes _settings' arguments by name
) -> int:
    """Train twice for the same time, with FedAvg and with NBSync, and compare.

    One server and one process per worker on this machine, each worker behind an emulated WAN link, one of them
    slower. Exits with 5 when NBSync does not reach the target accuracy.
    """
    settings = _settings(quick=quick, **options)
    check_place(picture)
    draw = _drawer(picture)
    view = make_view(settings, to_stderr=as_json)
    report = run(_demo(settings, view))
    if report is None:
        return view.interrupted()
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        table(report)
    draw(report, picture)
    if not as_json:
        click.echo(f"picture: {picture}")
    last = report.outcomes[-1]
    if last.time_to_target_s is None:
        raise TargetMissed(
            f"{last.algorithm} did not reach {report.target:.0%} in {report.budget_s:g} s, "
            f"its best was {last.best_accuracy:.1%}"
        )
    return 0


async def _demo(settings: DemoSettings, view: View) -> Report | None:
    from aiops.launch.demo import run_demo

    with Signals() as signals, view:
        async with asyncio.TaskGroup() as tasks:
            demo = tasks.create_task(run_demo(settings, view.tell))
            asked = tasks.create_task(signals.asked.wait())
            await asyncio.wait([demo, asked], return_when=asyncio.FIRST_COMPLETED)
            view.code = signals.code
            asked.cancel()
            if not demo.done():
                demo.cancel()
    return None if demo.cancelled() else demo.result()


def _settings(
    *,
    quick: bool,
    data: str | None,
    data_dir: Path | None,
    workers: int,
    slowdown: str,
    rate_mbit: float,
    delay_ms: float,
    step_ms: float,
    fedavg_steps: int | None,
    merge: str,
    lr: float,
    alpha: float,
    target: float | None,
    budget_s: float | None,
    seed: int,
) -> DemoSettings:
    from aiops.launch.demo_settings import DemoSettings
    from aiops.sim.relay import WanLink

    cache = _cache()
    if data is None:
        data = "digits" if quick else _best_data(data_dir, cache)
    small = data == "digits"
    return DemoSettings(
        data=data,
        data_root=data_dir,
        cache=cache,
        n_workers=workers,
        link=None if quick else WanLink(rate_mbit * 1e6, delay_ms / 1e3),
        step_s=(5.0 if quick else step_ms) / 1e3,
        slowdown=_slowdown(slowdown, workers),
        hidden=64 if small else 256,
        batch=32,
        lr=lr,
        fedavg_steps=fedavg_steps if fedavg_steps is not None else _fedavg_steps(quick=quick),
        merge=merge,
        alpha=alpha,
        target=target if target is not None else (0.9 if small else 0.76),
        budget_s=budget_s if budget_s is not None else (3.5 if quick else 60.0),
        seed=seed,
    )


# Tuned: of 10, 20, 40 and 80 steps on the default links, 40 is the quickest (41, 37, 28 and 36 s to 76 %, where NBSync
# takes 7 to 10 s). With no link to speak of, rounds can be short.
def _fedavg_steps(*, quick: bool) -> int:
    return 10 if quick else 40


# What draws the picture; asked for before anything runs, since it may not be installed.
def _drawer(picture: Path) -> Callable[[Report, Path], None]:
    if picture.suffix.lower() not in PICTURES:
        raise ConfigError(f"picture is {picture.name}, it must end in {', '.join(PICTURES)}")
    try:
        from aiops.launch.demo_picture import draw
    except ImportError as error:
        raise ConfigError(f"the demo needs more: pip install 'aiops-ps[demo]' ({error})") from None
    return draw


def _best_data(root: Path | None, cache: Path | None) -> str:
    if is_available("fashion-mnist", root=root, cache=cache):
        return "fashion-mnist"
    click.echo(
        "fashion-mnist is not on this machine (Debian: apt-get install dataset-fashion-mnist), "
        "using the small digits instead",
        err=True,
    )
    return "digits"


def _cache() -> Path | None:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "aiops" / "datasets" if home else None


def _slowdown(text: str, workers: int) -> tuple[float, ...]:
    try:
        factors = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"slowdown is {text!r}, it must be numbers with commas") from None
    if len(factors) == 1:
        return (1.0,) * (workers - 1) + factors
    return factors
