"""Bits and rates of the codecs."""
