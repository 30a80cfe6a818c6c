"""Reports: one HTML file that works offline, and PNG and PDF of every figure.

The caller says what to show, in plain data; this package knows nothing about algorithms.
"""

from bilax.report.optional_imports import check_installed
from bilax.report.page import Figure, Gallery, Method, Page, Specimen, Verdict, write

__all__ = ["Figure", "Gallery", "Method", "Page", "Specimen", "Verdict", "check_installed", "write"]
