"""The operators of the language: what each remembers, and when it is true.

Importing this package imports the files of all operators, each of which enters its operators in the table.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
