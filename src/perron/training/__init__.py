"""From a recipe to a trained model."""

from perron.training.recipe import Recipe, read_recipe, recipe_names, recipe_table
from perron.training.run import Result, train

__all__ = [
    "Recipe",
    "Result",
    "read_recipe",
    "recipe_names",
    "recipe_table",
    "train",
]
