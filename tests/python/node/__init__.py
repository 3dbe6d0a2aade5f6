"""A real node: kubelet, containerd and kube-proxy, and what happens to pods on it."""
