"""Perron inside other libraries; each module needs the extra that it names."""
