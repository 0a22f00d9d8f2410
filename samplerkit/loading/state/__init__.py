"""What a saved state says, and what it is compared with."""
