"""Conformance cases: third-party programs, faults and crashes against the gateway's release build.

`python3 -m conformance --help`, in the repository's root, prints the options.
"""
