"""The operators of the language: the state that each keeps, and when it is true.

Importing this package imports the files of all operators, which register their operators in the table.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
