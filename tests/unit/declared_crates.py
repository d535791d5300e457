"""
Manifests of small crates, for the tests of workspaces and declarations.
"""

from __future__ import annotations


def package(name: str, metadata: str = "", rest: str = "") -> str:
    declared = f"[package.metadata.sglang]\n{metadata}\n" if metadata else ""
    return f'[package]\nname = "{name}"\nversion = "0.1.0"\n{declared}{rest}\n'


def module(name: str, more: str = "") -> str:
    return f'python-module = "{name}"\n{more}'


ROOT = '[workspace]\nmembers = ["a"]\n'
