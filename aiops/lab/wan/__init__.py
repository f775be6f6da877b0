"""Emulated wide-area links between a server and its workers, and the gates a run must pass to be believed."""

from aiops.lab.wan.base import Wan
from aiops.lab.wan.door import open_wan
from aiops.lab.wan.gate import Verdict, check_step
from aiops.lab.wan.link import Change, LinkSpec
from aiops.lab.wan.probe import examine

__all__ = ["Change", "LinkSpec", "Verdict", "Wan", "check_step", "examine", "open_wan"]
