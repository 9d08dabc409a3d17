"""Records and runs as one HTML page that needs nothing else: no network, no script, no other file."""

from truedrift.page.discover import Found, find
from truedrift.page.page import write_page

__all__ = ["Found", "find", "write_page"]
