"""Kernels: compiled for the CPU, and plain torch for every other device."""
