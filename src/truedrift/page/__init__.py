"""Records and runs as one HTML page that needs nothing else: no network, no script, no other file."""

from truedrift.page.discover import ReportInput, find_inputs
from truedrift.page.page import write_page

__all__ = ["ReportInput", "find_inputs", "write_page"]
