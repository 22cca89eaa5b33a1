"""`thinwire bench`: one subcommand a benchmark.

Hooked into the command line by `app.add_typer(bench, name="bench")`.
"""

import typer

from thinwire.bench.codecs_command import codecs
from thinwire.bench.kernels_command import kernels
from thinwire.bench.sync_command import sync
from thinwire.bench.train_command import train

bench = typer.Typer(help="Measure: results as a table, and as JSON.", no_args_is_help=True)
for command in (sync, train, kernels, codecs):
    bench.command()(command)
