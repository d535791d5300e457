"""
Turn a workspace into what an installer can install.

The rooms here serve the local build hook of a distribution that carries
extension modules. Nothing at run time imports them.

Invariant: nothing here is on the path of an import, and nothing here builds
anything that the loader itself would not build.
"""

from __future__ import annotations
