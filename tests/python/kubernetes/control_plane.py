"""etcd and a real kube-apiserver, with clients."""
import contextlib
import http.client
import json
import ssl
import subprocess
import time

import yaml

# An address of the check's network namespace, from the documentation range.
SERVER = "198.51.100.1"
SERVICES = "10.96.0.0/16"
# The address of the Service `kubernetes`, through which pods reach the API server.
FIRST = "10.96.0.1"


def until(holds, seconds=60):
    """Returns the first true value of `holds`, or its last value after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.2)


class ControlPlane:
    """etcd and kube-apiserver with more options. Keys and logs are below `folder`."""

    def __init__(self, folder, apiserver, options=()):
        self.folder, self.processes = folder, []
        self.keys(folder)
        self.start("etcd", "etcd", f"--data-dir={folder}/etcd", "--listen-client-urls=http://127.0.0.1:2379",
                   "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync")
        self.start("apiserver", apiserver, "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={SERVER}", "--secure-port=6443",
                   f"--advertise-address={SERVER}", f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key",
                   f"--client-ca-file={folder}/ca.crt", "--authorization-mode=RBAC", f"--service-cluster-ip-range={SERVICES}",
                   "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/accounts.key",
                   f"--service-account-signing-key-file={folder}/accounts.key",
                   # The identity headers for aggregated API servers.
                   f"--requestheader-client-ca-file={folder}/ca.crt", "--requestheader-allowed-names=front-proxy",
                   "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
                   "--requestheader-extra-headers-prefix=X-Remote-Extra-", f"--proxy-client-cert-file={folder}/front.crt",
                   f"--proxy-client-key-file={folder}/front.key", *options)
        self.context = ssl.create_default_context(cafile=folder / "ca.crt")
        self.context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": f"https://{SERVER}:6443", "certificate-authority": str(folder / "ca.crt")}}],
            "users": [{"name": "it", "user": {"client-certificate": str(folder / "admin.crt"), "client-key": str(folder / "admin.key")}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))

    def start(self, name, *command, environment=None):
        """Starts a process that lives as long as this object. Its log is `name`.log."""
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment))
        self.processes[-1].name = name
        return self.processes[-1]

    @staticmethod
    def keys(folder):
        def openssl(*args):
            subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=it")
        openssl("genrsa", "-out", "accounts.key", "2048")
        for name, subject, more in [
            ("server", "/CN=kube-apiserver", f"subjectAltName=IP:{SERVER},IP:{FIRST},DNS:kubernetes.default.svc"),
            ("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth"),
            ("front", "/CN=front-proxy", "extendedKeyUsage=clientAuth"),
        ]:
            (folder / f"{name}.ext").write_text(more)
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1",
                    "-out", f"{name}.crt", "-extfile", f"{name}.ext")

    def alive(self):
        """Raises an error with the end of the log if one of the processes has exited."""
        for process in self.processes:
            if process.poll() is not None:
                raise SystemExit(f"{process.name} ended:\n" + (self.folder / f"{process.name}.log").read_text(errors="replace")[-2000:])

    def await_ready(self):
        def healthy():
            self.alive()
            try:
                return self.ask("GET", "/readyz")[0] == 200
            except OSError:
                return False

        assert until(healthy, 120), "the API server was not ready within 2 minutes"

    def ask(self, method, path, body=None, token=None, content="application/json"):
        """Returns status, warnings and the response's JSON."""
        context = self.context
        headers = {"content-type": content}
        if token:
            context = ssl.create_default_context(cafile=self.folder / "ca.crt")
            headers["authorization"] = f"Bearer {token}"
        connection = http.client.HTTPSConnection(SERVER, 6443, context=context, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            warnings = [value for name, value in answer.getheaders() if name.lower() == "warning"]
        try:
            return answer.status, warnings, json.loads(text)
        except ValueError:
            return answer.status, warnings, text.decode(errors="replace")

    def create(self, path, body, dry=False):
        return self.ask("POST", f"{path}?fieldValidation=Strict{'&dryRun=All' if dry else ''}", body)

    def kubectl(self, *args, given=None):
        """Returns the output, or None on failure, and the error output."""
        done = subprocess.run(["kubectl", "--kubeconfig", str(self.kubeconfig), *args], input=given, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None, done.stderr

    def end(self, process):
        """Ends one of the processes without an error."""
        self.processes.remove(process)
        process.terminate()
        process.wait(20)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
