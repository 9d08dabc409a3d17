"""Figures and tables from records alone; one item of the paper a file, named by its LaTeX label."""
