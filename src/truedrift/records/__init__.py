"""Records of studies: one JSON object per line, each with its provenance.

A record is a frozen dataclass of numbers, strings, tuples and further records. The record dataclasses stand beside the
studies that compute them (`truedrift.paper`); this package stores and reads them.
"""

from truedrift.records.provenance import Provenance, made_by, provenance
from truedrift.records.store import RECORDS, append, read, readable, writable_directory

__all__ = ["RECORDS", "Provenance", "append", "made_by", "provenance", "read", "readable", "writable_directory"]
