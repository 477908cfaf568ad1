"""Recipes: one TOML file for each dataset of the paper's Table 2, and the demo."""
