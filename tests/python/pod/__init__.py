"""A pod's life without a cluster: a small kubelet, the Service in front of it, clients and a collector."""
