"""Code shared by all cases: the runner, the gateway, its peers, and clients."""
