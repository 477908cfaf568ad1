"""Reproduction of every table and figure of Gong et al. (2019)."""
