"""`thinwire bench`: one subcommand for each benchmark."""

import typer

from thinwire.cli.bench_codecs import codecs
from thinwire.cli.bench_converge import converge
from thinwire.cli.bench_kernels import kernels
from thinwire.cli.bench_sync import sync
from thinwire.cli.bench_train import train

bench = typer.Typer(help="Measure: results as a table, and as JSON.", no_args_is_help=True)
for command in (sync, train, converge, kernels, codecs):
    bench.command()(command)
