"""``python -m papers.gong2019 TARGET``, from the root of a checkout."""

from perron.cli import launch

launch("papers.gong2019.reproduce")
