"""Problems by name, runs of methods on them that are kept, searches for good settings, and pages of what came out."""
