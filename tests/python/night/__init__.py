"""The parts of night_check.py."""
