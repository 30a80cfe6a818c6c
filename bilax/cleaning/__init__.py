"""A table, or a folder of images, with labels some of which are wrong: from files to an answer and a page."""
