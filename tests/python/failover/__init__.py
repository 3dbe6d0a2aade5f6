"""The parts of failover_check.py."""
