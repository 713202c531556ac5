"""Ready topologies, written only with what a user has."""
