"""Shared code of all measurements: programs, processes, brisk, its load generator, certificates, links, figures and tables."""
