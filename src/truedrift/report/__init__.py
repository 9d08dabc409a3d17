"""What all figures and tables share: items, tables, figure style, and text for the terminal."""
