"""Records of studies: one JSON object per line, each with its provenance.

A record is a frozen dataclass of numbers, strings, tuples and further dataclasses. The classes are defined with the
studies that compute them (`truedrift.paper`); this package writes and reads them.
"""

from truedrift.records.provenance import Provenance, provenance, with_command
from truedrift.records.store import RECORDS, append, read, read_lenient, writable_directory

__all__ = [
    "RECORDS",
    "Provenance",
    "append",
    "provenance",
    "read",
    "read_lenient",
    "with_command",
    "writable_directory",
]
