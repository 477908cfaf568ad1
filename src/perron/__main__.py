"""Entry point of ``python -m perron``, which torchrun and accelerate need."""

from perron.cli import main

main()
