"""``python -m perron`` is ``perron``; so torchrun and accelerate can launch it."""

from perron.cli import main

main()
