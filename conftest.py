"""Pytest plugins for all tests."""

pytest_plugins = ["perron_tests.fixtures", "perron_tests.chromium"]
