"""Where a header, in words of 8 bytes, has what is filled in last."""

SUM, ADDRESS = 6, 7
HEADER_WORDS = 8
