"""Time to a loss: curves over steps once, seconds from step times on shaped links."""
