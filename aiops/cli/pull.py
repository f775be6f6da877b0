"""``aiops pull``: the newest parameters as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray

from aiops.api.connecting import connect
from aiops.cli.run import check_timeout, run
from aiops.cli.secure import files, tls_options
from aiops.cli.tensors import check_place, save
from aiops.errors import ConnectFailed
from aiops.transport.certificate import Tls


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timeout-s", type=float, default=10.0, show_default=True, help="To connect.")
@tls_options
def pull(
    url: str,
    file: Path,
    *,
    timeout_s: float,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Write the newest parameters of the server at URL to FILE (safetensors)."""
    check_timeout(timeout_s)
    check_place(file)
    version, tensors = run(_pull(url, timeout_s, files(tls_cert, tls_key, tls_ca)))
    save(file, tensors)
    values = sum(tensor.size for tensor in tensors.values())
    click.echo(f"{file}: version {version}, {len(tensors)} tensors, {values} values")


async def _pull(url: str, timeout_s: float, tls: Tls | None) -> tuple[int, dict[str, NDArray[Any]]]:
    async with connect(url, connect_timeout_s=timeout_s, give_up_s=0.0, tls=tls) as ps:
        report = await ps.status()
        if not report["seeded"]:
            raise ConnectFailed(f"{url} has no parameters yet: {report['waiting']}")
        tensors = await ps.init()
        return ps.version, tensors
