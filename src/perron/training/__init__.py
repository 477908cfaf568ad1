"""Training: recipes, the training loop, checkpoints and metrics."""

from perron.training.recipe import Recipe, read_recipe, recipe_names, recipe_table
from perron.training.run import Result, finish, train

__all__ = [
    "Recipe",
    "Result",
    "finish",
    "read_recipe",
    "recipe_names",
    "recipe_table",
    "train",
]
