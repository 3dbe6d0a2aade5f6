"""Images for containerd without a registry: archives of one layer, in the format of `docker save`."""
import hashlib
import io
import json
import pathlib
import tarfile

# The path of Debian's busybox-static.
BUSYBOX = "/bin/busybox"


def saved(archive, name, files, config):
    """Writes `archive`: an image called `name` that holds `files` (path in the image → local path or bytes) and runs with `config`."""
    for path in files.values():
        if not isinstance(path, bytes) and b"ld-linux" in pathlib.Path(path).read_bytes()[:4096]:
            raise SystemExit(f"{path} is dynamically linked, and the image has no loader or libraries: install a static build (Debian: busybox-static)")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in sorted({str(parent) for path in files for parent in pathlib.PurePosixPath(path).parents} - {"."} | {"tmp"}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, content in sorted(files.items()):
            data = content if isinstance(content, bytes) else pathlib.Path(content).read_bytes()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    data = layer.getvalue()
    about = json.dumps({"architecture": "amd64", "os": "linux", "config": config,
                        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest()]}}).encode()
    parts = {"layer.tar": data, "config.json": about,
             "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()}
    with tarfile.open(archive, "w") as tar:
        for path, content in parts.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
