"""What runs leave on disk, and what their numbers depend on."""
