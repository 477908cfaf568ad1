"""Reproductions of papers. They use Perron and are not part of the package."""
