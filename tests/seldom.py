"""Methods that seldom change: what holds for every method alike is shown of them by the slow set alone."""

SELDOM = {"mrbo-d", "mstsa", "sema", "rsvrb", "ma-soba", "saba", "spaba", "fsla", "amigo", "bome", "pzobo"}
