"""Tests on a real node with kubelet, containerd and kube-proxy."""
