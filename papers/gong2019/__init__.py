"""Gong et al. (2019): every table and figure, with our numbers next to theirs."""
