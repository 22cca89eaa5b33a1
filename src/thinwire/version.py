"""Which thinwire this is; ranks must have the same."""

VERSION = "0.2.0"
