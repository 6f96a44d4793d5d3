"""Runs conformance cases."""

from .harness.runner import main

main()
