"""The names of Services, as a cluster's DNS tells them."""
import socket
import struct
import threading


class Dns:
    """Answers, over UDP, for `SERVICE.NAMESPACE.svc.DOMAIN`; of all else it says that there is nothing."""

    def __init__(self, cluster, address, domain):
        self.cluster, self.suffix = cluster, f".svc.{domain}"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, client = self.socket.recvfrom(512)
                self.socket.sendto(self.answer(query), client)
            except OSError:
                return

    def answer(self, query):
        labels, at = [], 12
        while size := query[at]:
            labels.append(query[at + 1:at + 1 + size].decode())
            at += 1 + size
        asked = query[12:at + 5]
        name, kind = ".".join(labels).lower(), struct.unpack(">H", query[at + 1:at + 3])[0]
        found = self.found(name)
        records = b""
        if found and kind == 1:
            records = struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(found)
        # A response with recursion; NXDOMAIN where there is no such name.
        flags = 0x8580 | (0 if found else 3)
        return query[:2] + struct.pack(">HHHHH", flags, 1, bool(records), 0, 0) + asked + records

    def found(self, name):
        if not name.endswith(self.suffix):
            return None
        service, _, namespace = name.removesuffix(self.suffix).partition(".")
        try:
            status, _, said = self.cluster.ask("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        except OSError:
            return None
        return said["spec"].get("clusterIP") if status == 200 else None

    def close(self):
        self.socket.close()
