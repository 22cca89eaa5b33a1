"""One report for all tests here."""

from support.report import report

__all__ = ["report"]
