"""What can go wrong with a lab."""

from thinwire.errors import ThinwireError


class LabError(ThinwireError):
    """The machine cannot make this network, or a command cannot run in it; the text says why."""
