"""
Decide what an installed distribution contains besides Python code: so far the `.pth` line of an editable install.

The build hook of a distribution imports this subpackage.

Invariant: nothing here runs when a module is imported.
"""

from __future__ import annotations
