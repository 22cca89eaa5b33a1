"""What one selection runs over: its state, its statistics, rows of embeddings."""
