"""What a campaign leaves in a directory: a manifest to run it again by, its records and their summary."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, Self

import msgspec

from aiops.bench.machine import Machine
from aiops.errors import ConfigError
from aiops.lab.comparison import Comparison, Setting, setting_of
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario

Lab = Literal["virtual", "real"]

MANIFEST, RECORDS, SUMMARY = "manifest.json", "records.jsonl", "summary.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a campaign can be run again from.

    Attributes:
        scenario: With its methods looked up and tuned, and the seeds that ran.
        lab: Where it ran.
        reference: The method that speed-ups are over.
        n_values: Parameters of the model.
        machine: Where and with which versions.
        version: Of aiops.
        command: What was asked for.
    """

    scenario: Scenario
    lab: Lab
    reference: str
    n_values: int
    machine: Machine
    version: str
    command: str

    @property
    def setting(self) -> Setting:
        """What the results depend on."""
        return setting_of(self.scenario, self.lab, self.n_values)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one file.

    Attributes:
        path: The file.
        records: What is in it.
        manifest: What stands beside it; None if there is none.
    """

    path: Path
    records: tuple[Record, ...]
    manifest: Manifest | None


def command_line(arguments: Sequence[str]) -> str:
    """Return what was asked for as a line that a shell takes."""
    return shlex.join(["aiops", *arguments])


class Folder:
    """Takes a campaign's results in as they come, so that an interrupted one keeps what it has; use it as ``with``.

    Args:
        path: The directory, made if need be.
        manifest: What is about to run.

    Raises:
        ConfigError: It cannot be written to, or holds results already.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        if (path / RECORDS).exists():
            raise ConfigError(f"{path} holds results already ({RECORDS}), name another directory")
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / MANIFEST).write_bytes(_pretty(manifest))
            self._file: IO[bytes] = (path / RECORDS).open("xb")
        except OSError as error:
            raise ConfigError(f"cannot write results to {path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, record: Record) -> None:
        """Write a record; it is safe once this returns."""
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def finish(self, records: Sequence[Record], summary: Comparison) -> None:
        """Write what came of it, and the records once more in their order, which is not the one they came in."""
        part = self.path / f"{RECORDS}.part"
        part.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
        part.replace(self.path / RECORDS)
        (self.path / SUMMARY).write_bytes(_pretty(summary))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        ConfigError: It cannot be read, or is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path} is no manifest of aiops lab run: {error}") from None


def read_result(path: Path) -> Result:
    """Read the records of a directory, or of a file of one record a line.

    Raises:
        ConfigError: It cannot be read, is none or is empty.
    """
    file = path / RECORDS if path.is_dir() else path
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(msgspec.json.decode(line, type=Record))
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{file}, line {number} is no record of aiops lab: {error}") from None
    if not records:
        raise ConfigError(f"{file} has no records")
    manifest = file.with_name(MANIFEST)
    return Result(
        path=file,
        records=tuple(records),
        manifest=read_manifest(manifest) if manifest.exists() else None,
    )


def _pretty(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
