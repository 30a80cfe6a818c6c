"""Estimators of the hypergradient, the gradient of Phi(x) = f(x, y*(x))."""
