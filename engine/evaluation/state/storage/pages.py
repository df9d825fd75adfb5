"""The slots of a key table, by page."""

from typing import Final

PAGE_BITS: Final = 8
PAGE_SLOTS: Final = 1 << PAGE_BITS
IN_PAGE: Final = PAGE_SLOTS - 1

NO_SLOT: Final = -1
"""The slot of a key that is not live. Every column reads NEVER there, and it is never written."""
