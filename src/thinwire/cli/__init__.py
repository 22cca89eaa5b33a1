"""The command line: all of typer and rich."""
