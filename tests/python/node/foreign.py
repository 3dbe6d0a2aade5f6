"""What others make, installed on the node by manifests of their own."""
import yaml

from node import images


def manifests(node, folder):
    return [one for one in yaml.safe_load_all(node.run("kubectl", "kustomize", str(folder))) if one]


def load(node, container, program, entrypoint=None):
    """Puts a program under the name of the container's image, which can come from nowhere else here."""
    archive, [path] = node.folder / "image.tar", entrypoint or container["command"]
    images.saved(archive, container["image"], {path.lstrip("/"): str(program)}, {"User": "1000", "Entrypoint": [path]})
    node.load(archive, container["image"])
    container["imagePullPolicy"] = "Never"


def install(node, documents, apis=()):
    """Applies them, and waits until their Deployments are ready and the API server reaches them for these APIs."""
    # Some are too long for what it would note down of them otherwise.
    kubectl(node, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(documents))
    for one in documents:
        if one["kind"] == "Deployment":
            name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
            kubectl(node, "rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=240s", told=(namespace, name))
    for api in apis:
        kubectl(node, "wait", "--for=condition=Available", "--timeout=120s", f"apiservice/{api}")


def kubectl(node, *command, given=None, told=None):
    done, wrong = node.kubectl(*command, given=given)
    if done is None:
        known = []
        if told:
            namespace, name = told
            known = [node.kubectl(f"--namespace={namespace}", *ask)[0] for ask in (("describe", "pods"), ("logs", "--tail=20", f"deployment/{name}"))]
        raise AssertionError("\n".join([wrong, *(text[-3000:] for text in known if text)]))
