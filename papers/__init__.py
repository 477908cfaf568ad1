"""Reproductions of papers, which use Perron but are not part of the package."""
