"""What is published, built and tried as who installs it gets it."""
