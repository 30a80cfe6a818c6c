"""Arithmetic that knows nothing of bilevel problems."""
