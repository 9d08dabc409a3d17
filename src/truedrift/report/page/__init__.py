"""Records and runs as one HTML page that needs nothing else: no network, no script, no other file."""

from truedrift.report.page.found import Found, find
from truedrift.report.page.written import write_page

__all__ = ["Found", "find", "write_page"]
