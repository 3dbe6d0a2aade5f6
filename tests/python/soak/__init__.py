"""Parts of soak_check.py: API formats, a backend with faults, clients, and a collector that fails from time to time."""
