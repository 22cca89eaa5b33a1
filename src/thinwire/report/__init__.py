"""`thinwire report`: any set of result files as one HTML page, and its figures as PNG."""
