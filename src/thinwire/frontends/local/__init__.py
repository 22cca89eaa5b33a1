"""Local steps: ranks train on their own, and meet every so often by any recipe."""

from thinwire.frontends.local.front import outer
from thinwire.frontends.local.handle import Outer
from thinwire.frontends.local.setups import SETUPS, Setup

__all__ = ["SETUPS", "Outer", "Setup", "outer"]
