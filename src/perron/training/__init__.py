"""From a recipe to a trained model."""

from perron.training.run import Result, train
from perron.training.settings import Recipe, read_recipe, recipe_names, recipe_table

__all__ = [
    "Recipe",
    "Result",
    "read_recipe",
    "recipe_names",
    "recipe_table",
    "train",
]
