"""Programs of parties that run as processes of their own, by their paths."""
