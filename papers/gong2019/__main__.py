"""Entry point of ``python -m papers.gong2019``, run from the root of a checkout."""

from perron.cli import launch

launch("papers.gong2019.reproduce")
