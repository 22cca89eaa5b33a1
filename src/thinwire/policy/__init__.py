"""Policies decide how much to send, and when."""

from thinwire.policy.schedule import WarmUp

__all__ = ["WarmUp"]
