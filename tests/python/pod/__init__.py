"""The life of a pod without a cluster: a small kubelet, the Service in front of the pod, clients and a collector."""
