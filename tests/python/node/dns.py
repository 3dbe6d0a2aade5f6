"""A DNS server for the names of Services, as in a cluster."""
import contextlib
import socket
import struct
import threading


class Dns:
    """Answers over UDP for `SERVICE.NAMESPACE.svc.DOMAIN`. Returns NXDOMAIN for other names."""

    def __init__(self, cluster, address, domain):
        self.cluster, self.suffix = cluster, f".svc.{domain}"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, client = self.socket.recvfrom(512)
            except OSError:
                return
            # A client that gets no answer retries.
            with contextlib.suppress(OSError):
                self.socket.sendto(self.answer(query), client)

    def answer(self, query):
        labels, at = [], 12
        while size := query[at]:
            labels.append(query[at + 1:at + 1 + size].decode())
            at += 1 + size
        question = query[12:at + 5]
        name, kind = ".".join(labels).lower(), struct.unpack(">H", query[at + 1:at + 3])[0]
        found = self.found(name)
        addresses = found if found and kind == 1 else []
        records = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(address) for address in addresses)
        # A response with recursion available; NXDOMAIN for an unknown name.
        flags = 0x8580 | (3 if found is None else 0)
        return query[:2] + struct.pack(">HHHHH", flags, 1, len(addresses), 0, 0) + question + records

    def found(self, name):
        """Returns the ClusterIP of a Service, or the addresses of its ready pods if it is headless. None for an unknown Service."""
        if not name.endswith(self.suffix):
            return None
        service, _, namespace = name.removesuffix(self.suffix).partition(".")
        status, _, result = self.cluster.ask("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        if status != 200:
            return None
        if result["spec"].get("clusterIP") != "None":
            return [result["spec"]["clusterIP"]]
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
        endpoints = [endpoint for one in self.cluster.ask("GET", slices)[2]["items"] for endpoint in one.get("endpoints") or []]
        return [address for endpoint in endpoints if endpoint["conditions"].get("ready") for address in endpoint["addresses"]]

    def close(self):
        self.socket.close()
