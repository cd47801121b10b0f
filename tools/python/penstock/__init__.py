"""Penstock's datasets, reports and plans, for NumPy. No compiled parts; `planetoid` needs not even NumPy."""
from .dataset import Dataset, FormatError, open_dataset
from .results import read_plan, read_report

__all__ = ["Dataset", "FormatError", "open_dataset", "read_plan", "read_report"]
