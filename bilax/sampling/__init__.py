"""Random keys, and the batches that they stand for."""
