"""etcd and kube-apiserver, with keys of their own, in a network namespace of their own where one can be had."""
import json
import os
import pathlib
import subprocess
import time

import rig

ADMIN = "admin-token"


class ApiServer(rig.Processes):
    """No controllers and no nodes run: objects are admitted and stored, and nothing else happens to them."""

    def __init__(self, binary, address):
        super().__init__("cluster")
        self.address, etcd, peer, self.port = address, rig.free_port(), rig.free_port(), rig.free_port()
        self.keys()
        self.start("etcd", ["etcd", "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", f"http://127.0.0.1:{etcd}", "--advertise-client-urls",
                            f"http://127.0.0.1:{etcd}", "--listen-peer-urls", f"http://127.0.0.1:{peer}"], etcd)
        (self.folder / "tokens.csv").write_text(f'{ADMIN},admin,admin-uid,"system:masters"\n')
        file = lambda name: str(self.folder / name)
        self.start("kube-apiserver", [
            binary, "--etcd-servers", f"http://127.0.0.1:{etcd}", "--bind-address", "0.0.0.0", "--advertise-address", address, "--secure-port", str(self.port),
            "--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key"), "--service-cluster-ip-range", "10.96.0.0/16",
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", file("accounts.key"),
            "--service-account-signing-key-file", file("accounts.key"), "--token-auth-file", file("tokens.csv"), "--authorization-mode", "RBAC",
            # A webhook's Service is found by its EndpointSlices, as there is no kube-proxy.
            "--enable-aggregator-routing", "--profiling=false"], self.port)
        if not rig.wait_until(lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0):
            raise SystemExit(f"kube-apiserver does not get ready; see {self.folder}")

    def keys(self):
        """A certificate authority, the server's certificate for its address, and the key of service accounts."""
        for name, args in (
            ("ca", ["-subj", "/CN=cluster"]),
            ("server", ["-subj", "/CN=kube-apiserver", "-addext", f"subjectAltName=IP:127.0.0.1,IP:{self.address},IP:10.96.0.1,DNS:kubernetes.default.svc",
                        "-CA", f"{self.folder}/ca.crt", "-CAkey", f"{self.folder}/ca.key"]),
        ):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout",
                            f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.crt", *args], check=True, capture_output=True)
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{self.folder}/accounts.key"], check=True, capture_output=True)

    def kubeconfig(self, name="admin", token=ADMIN):
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
            "clusters": [{"name": "here", "cluster": {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": f"{self.folder}/ca.crt"}}],
            "users": [{"name": name, "user": {"token": token}}]}))
        return str(path)

    def kubectl(self, *args, stdin=None, check=True, **user):
        done = subprocess.run(["kubectl", "--kubeconfig", self.kubeconfig(**user), *args], input=stdin, capture_output=True, text=True, timeout=rig.PATIENCE,
                              env={**os.environ, "HOME": str(self.folder)})
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr[-1000:]}")
        return done

    def get(self, *args):
        return json.loads(self.kubectl("get", *args, "-o", "json").stdout)

    def apply(self, *objects, check=True):
        """Creates or changes objects; gives back what kubectl said."""
        return self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}), check=check)

    def namespace(self, name, **labels):
        """With the service account that a controller would make."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}})
