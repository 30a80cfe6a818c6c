"""The field's benchmark, with every method as published and the exact objective: `bilax reproduce benchmark`."""
