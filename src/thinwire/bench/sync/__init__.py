"""One gradient, synchronised over shaped links."""
