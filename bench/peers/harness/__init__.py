"""Runs every peer through the same scenarios on one PostgreSQL and writes down what came out. Standard library only."""
