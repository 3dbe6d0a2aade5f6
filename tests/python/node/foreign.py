"""Third-party software, installed on the node from its own manifests."""
import yaml

from node import images


class Loader(yaml.SafeLoader):
    """Reads a lone `=` as text, as Kubernetes does."""


Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def manifests(node, folder):
    return documents(node.run("kubectl", "kustomize", str(folder)))


def documents(text):
    return [one for one in yaml.load_all(text, Loader) if one]


def load(node, container, program, entrypoint=None):
    """Imports a program under the name of the container's image. The node has no access to a registry."""
    [path] = entrypoint or container["command"]
    named(node, container["image"], path, program)
    container["imagePullPolicy"] = "Never"


def named(node, image, path, program):
    archive = node.folder / "image.tar"
    images.saved(archive, image, {path.lstrip("/"): str(program)}, {"User": "1000", "Entrypoint": [path]})
    node.load(archive, image)


def install(node, given, apis=()):
    """Applies these documents. Waits until their Deployments are ready and the API server reaches them for these APIs."""
    # Some are too long for the annotation of a client-side apply.
    kubectl(node, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(given))
    for one in given:
        if one["kind"] == "Deployment":
            name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
            kubectl(node, "rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=240s", deployment=(namespace, name))
    for api in apis:
        kubectl(node, "wait", "--for=condition=Available", "--timeout=120s", f"apiservice/{api}")


def kubectl(node, *command, given=None, deployment=None):
    done, wrong = node.kubectl(*command, given=given)
    if done is None:
        known = []
        if deployment:
            namespace, name = deployment
            known = [node.kubectl(f"--namespace={namespace}", *ask)[0] for ask in (("describe", "pods"), ("logs", "--tail=20", f"deployment/{name}"))]
        raise AssertionError("\n".join([wrong, *(text[-3000:] for text in known if text)]))
