"""What all cases share: the runner, the gateway, its peers, and clients."""
