"""Signals as a user's terminal sends them, also where the tests run in the background."""

import signal


def hear_signals() -> None:
    """For `preexec_fn`: a shell lets what runs in its background ignore these."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
