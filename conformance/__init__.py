"""Conformance cases: other programs, faults and crashes against the gateway's release build.

`python3 -m conformance --help`, in the repository's root, says how to run them.
"""
