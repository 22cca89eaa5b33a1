"""The `thinwire` command before it is imported: that takes seconds, in which Ctrl-C may come.

Beside the package and not in it, since the first import of a module of the package is torch's too.
"""

import os
import signal


def main() -> None:
    """The entry point: `thinwire.cli.app`, once that is there. Ctrl-C is 130, also until then."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # else it is ignored, as behind a shell's `&`
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # nothing was begun yet
    from thinwire.cli.app import main as command

    signal.signal(signal.SIGINT, heard)
    command()
