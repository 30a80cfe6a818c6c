"""The paper's own experiments: its figures, its claims, its Table 1. No other part of bilax depends on this one."""
