"""Integrations with other libraries. Each module names the extra it needs."""
