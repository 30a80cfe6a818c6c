"""Taking the steps of a method: one compiled loop, and what people need around it."""
