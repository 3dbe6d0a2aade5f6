"""A small kubelet: starts a pod's containers in order, probes them, and ends them in order.

What it does is what the kubelet of kubernetes v1.34.2 does; the functions it follows are named, in pkg/kubelet/kuberuntime where no
other folder is. It knows no cgroups, images, volumes or users: a container is a process, in the pod's network namespace where there is
one. What a spec asks for beyond that is refused (`Unsupported`) where it would change the order of events.
"""
import collections
import dataclasses
import enum
import http.client
import os
import signal
import subprocess
import threading
import time

from pod import spec as specs

# kuberuntime_manager.go: what every container has at the end, however long its hooks took.
MINIMUM_GRACE = 2


class What(enum.Enum):
    """What happens to a container."""

    STARTED = "started"
    STARTUP = "startup probe succeeded"
    READY = "ready"
    UNREADY = "not ready"
    PRESTOP = "preStop begins"
    PRESTOPPED = "preStop is over"
    TERM = "SIGTERM"
    KILL = "SIGKILL"
    EXITED = "exited"


@dataclasses.dataclass(frozen=True)
class Event:
    at: float
    what: What
    container: str
    detail: object = ""


class Container:
    """One container of a pod, through its restarts."""

    def __init__(self, pod, spec, init):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.sidecar = init and specs.native(spec)
        self.variables = specs.environment(spec, pod.identity)
        self.process, self.started, self.ready, self.restarts = None, False, False, 0
        # Set when the process that runs now has exited, and all have been told.
        self.exits, self.gone = [], threading.Event()
        self.log = pod.folder / f"{self.name}.log"

    def run(self, command):
        """A process in the pod's sandbox with the container's variables and nothing else."""
        with open(self.log, "ab") as log:
            return subprocess.Popen([*self.pod.sandbox.enter, *command], env={"PATH": os.environ["PATH"], "HOSTNAME": self.pod.identity.name, **self.variables},
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.started = self.ready = False
        self.gone = threading.Event()
        self.process = self.run(specs.command(self.spec, self.pod.images, self.variables))
        self.pod.say(What.STARTED, self)
        threading.Thread(target=self.await_exit, args=(self.process, self.gone), daemon=True).start()
        probing = [kind for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in self.spec]
        if "startupProbe" not in probing:
            self.has_started()
        for kind in probing:
            threading.Thread(target=self.probe, args=(kind, self.process), daemon=True).start()

    def await_exit(self, process, gone):
        code = process.wait()
        self.exits.append(code)
        self.set_ready(False)
        self.pod.say(What.EXITED, self, code)
        gone.set()
        self.pod.exited(self)

    def has_started(self):
        self.started = True
        # prober/prober_manager.go, UpdatePodStatus: without a readiness probe a container is ready once it has started.
        if "readinessProbe" not in self.spec:
            self.set_ready(True)

    def set_ready(self, ready):
        if ready != self.ready:
            self.ready = ready
            self.pod.say(What.READY if ready else What.UNREADY, self)
            self.pod.readiness_changed()

    # --- probes: prober/worker.go, doProbe ---

    def probe(self, kind, process):
        probe = self.spec[kind]
        began, run, last = time.monotonic(), 0, None
        while process.poll() is None:
            # After a pod's deletion readiness alone is probed.
            if self.pod.deleted and kind != "readinessProbe":
                return
            if time.monotonic() - began >= probe.get("initialDelaySeconds", 0) and self.started == (kind != "startupProbe"):
                good = self.succeeds(probe)
                run, last = (run + 1 if good == last else 1), good
                if run >= (probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)) and process.poll() is None:
                    if not self.told(kind, good):
                        return
            time.sleep(probe.get("periodSeconds", 10) if self.started or kind == "startupProbe" else 0.1)

    def told(self, kind, good):
        """What follows from the outcome of a probe; says whether it goes on."""
        match kind:
            case "readinessProbe":
                self.set_ready(good)
                return True
            case "livenessProbe" if good:
                return True
            case "startupProbe" if good:
                self.pod.say(What.STARTUP, self)
                self.has_started()
            case "livenessProbe" | "startupProbe":
                # setTerminationGracePeriod: the probe's own, or the pod's.
                grace = self.spec[kind].get("terminationGracePeriodSeconds", self.pod.grace)
                threading.Thread(target=self.kill, args=(grace, None), daemon=True).start()
        return False

    def succeeds(self, probe):
        timeout = probe.get("timeoutSeconds", 1)
        try:
            match probe:
                case {"httpGet": get}:
                    return 200 <= self.get(get, timeout) < 400
                case {"exec": {"command": command}}:
                    return self.run(self.pod.here(command)).wait(timeout) == 0
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False
        raise specs.Unsupported(f"probe {probe}")

    def get(self, get, timeout):
        """From the node, at the pod's address."""
        if get.get("scheme", "HTTP") != "HTTP":
            raise specs.Unsupported(f"{get}")
        link = http.client.HTTPConnection(get.get("host") or self.pod.sandbox.address, specs.port(get["port"], self.spec), timeout=timeout)
        try:
            link.request("GET", get.get("path", "/"), headers={"User-Agent": "kube-probe/1.34", "Connection": "close"})
            answer = link.getresponse()
            answer.read()
            return answer.status
        finally:
            link.close()

    # --- the end: kuberuntime_container.go, killContainer ---

    def kill(self, grace, ordering):
        """`grace` in whole seconds: what hooks and waiting took is taken off, rounded down."""
        process, gone, hook = self.process, self.gone, self.spec.get("lifecycle", {}).get("preStop")
        if hook and grace > 0:
            grace -= self.prestop(hook, grace)
        if ordering and grace > 0:
            grace -= int(ordering.wait_for_turn(self, grace))
        self.stop(process, gone, max(grace, MINIMUM_GRACE))
        if ordering:
            ordering.terminated[self.name].set()

    def prestop(self, hook, grace):
        """executePreStopHook: whatever comes of it, the container is stopped afterwards."""
        began = time.monotonic()
        self.pod.say(What.PRESTOP, self)
        outcome = []
        runner = threading.Thread(target=lambda: outcome.append(self.hooked(hook)), daemon=True)
        runner.start()
        runner.join(grace)
        self.pod.say(What.PRESTOPPED, self, outcome[0] if outcome else "not completed in the grace period")
        return int(time.monotonic() - began)

    def hooked(self, hook):
        """lifecycle/handlers.go, Run: neither a command nor a GET has a limit of its own, and a GET's status is not looked at."""
        try:
            match hook:
                case {"exec": {"command": command}}:
                    time.sleep(self.pod.exec_takes)
                    return self.run(self.pod.here(command)).wait()
                case {"httpGet": get}:
                    return self.get(get, None)
                case {"sleep": {"seconds": seconds}}:
                    return time.sleep(seconds)
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        return f"unsupported: {hook}"

    def stop(self, process, gone, grace):
        """The runtime's StopContainer: SIGTERM, and SIGKILL when `grace` is over."""
        if not gone.is_set():
            self.pod.say(What.TERM, self, f"{grace} s")
            process.send_signal(signal.SIGTERM)
            if not gone.wait(grace):
                self.pod.say(What.KILL, self)
                process.kill()
                gone.wait()


class Ordering:
    """kuberuntime_termination_order.go: sidecars wait for all other containers and for the sidecars after them, as long as there is
    grace."""

    def __init__(self, pod, running):
        self.terminated = {container.name: threading.Event() for container in pod.containers}
        for container in pod.containers:
            if container not in running:
                self.terminated[container.name].set()
        self.before, apps = {}, [container.name for container in pod.apps]
        sidecars = [container.name for container in pod.inits if container.sidecar]
        for number, name in enumerate(sidecars):
            self.before[name] = apps + sidecars[number + 1:][:1]

    def wait_for_turn(self, container, grace):
        began = time.monotonic()
        for name in self.before.get(container.name, ()):
            if not self.terminated[name].wait(max(began + grace - time.monotonic(), 0)):
                break
        return time.monotonic() - began


class Pod:
    """A pod from its start to its end."""

    def __init__(self, spec, metadata, sandbox, node, images, paths, folder, service=None):
        """`images` is for `specs.command`; `paths` says for absolute paths in hooks what stands for them here."""
        folder.mkdir(parents=True, exist_ok=True)
        self.spec, self.sandbox, self.images, self.paths, self.folder, self.service = spec, sandbox, images, paths, folder, service
        self.identity = specs.Identity(
            name=metadata["name"], namespace=metadata.get("namespace", "default"), uid=metadata.get("uid", f"uid-of-{metadata['name']}"), node="node0",
            address=sandbox.address, node_address=node, labels=metadata.get("labels", {}), annotations=metadata.get("annotations", {}))
        self.grace = spec.get("terminationGracePeriodSeconds", 30)
        self.inits = [Container(self, one, True) for one in spec.get("initContainers", [])]
        self.apps = [Container(self, one, False) for one in spec["containers"]]
        self.containers = self.inits + self.apps
        self.events, self.observers, self.lock = [], collections.defaultdict(list), threading.RLock()
        self.deleted, self.ready, self.over = False, False, threading.Event()
        # Seconds until the runtime has a hook's command running.
        self.exec_takes = 0

    def container(self, name):
        return next(container for container in self.containers if container.name == name)

    def here(self, command):
        return [self.paths.get(command[0], command[0]), *command[1:]]

    def say(self, what, container, detail=""):
        """Notes an event, after those who wanted to see it before it takes effect have seen it."""
        for observer in self.observers[what, container.name]:
            observer()
        self.events.append(Event(time.monotonic(), what, container.name, detail))

    def when(self, what, name):
        """When that first happened, or None."""
        return next((event.at for event in self.events if (event.what, event.container) == (what, name)), None)

    def start(self, patience):
        """computeInitContainerActions: one init container after the other, a sidecar's turn being over once it has started."""
        limit = time.monotonic() + patience
        for container in self.inits:
            container.start()
            while not (container.started if container.sidecar else container.exits):
                if time.monotonic() > limit or container.exits and container.exits[-1]:
                    raise SystemExit(f"{container.name} does not start; see {container.log}")
                time.sleep(0.05)
        for container in self.apps:
            container.start()
        while not self.ready and not self.over.is_set():
            if time.monotonic() > limit:
                raise SystemExit(f"{self.identity.name} does not get ready: {[one.name for one in self.apps if not one.ready]}; see {self.folder}")
            time.sleep(0.05)

    def readiness_changed(self):
        """status/generate.go: ready are all containers and sidecars."""
        with self.lock:
            ready = all(container.ready for container in self.containers if container in self.apps or container.sidecar)
            changed, self.ready = ready != self.ready, ready
        if changed and self.service:
            self.service.changed(self)

    def exited(self, container):
        """Starts it again where the spec says so; a pod whose containers have all completed is terminated, sidecars and all."""
        policy = "Always" if container.sidecar else self.spec.get("restartPolicy", "Always")
        if container in self.inits and not container.sidecar:
            return
        with self.lock:
            if self.deleted:
                return
            if policy == "Always" or policy == "OnFailure" and container.exits[-1] != 0:
                # The first restart comes at once, the next ones after 10 s, 20 s and so on (kubelet.go, initialBackOff).
                rest = threading.Timer(10 * 2 ** (container.restarts - 1) if container.restarts else 0, self.restart, (container,))
                rest.daemon = True
                rest.start()
                return
            # kubelet.go, SyncPod: a terminal phase ends the pod, as pod_workers.go, completeSync, has it.
            if all(one.exits and one.process.poll() is not None for one in self.apps):
                self.deleted = True
                threading.Thread(target=self.terminate, args=(self.grace,), daemon=True).start()

    def restart(self, container):
        with self.lock:
            if not self.deleted:
                container.restarts += 1
                container.start()

    def delete(self, grace=None):
        """As by the API: returns at once, `over` is set at the end."""
        with self.lock:
            self.deleted = True
        self.deleted_at = time.monotonic()
        if self.service:
            self.service.changed(self)
        threading.Thread(target=self.terminate, args=(self.grace if grace is None else grace,), daemon=True).start()

    def terminate(self, grace):
        """killContainersWithSyncResult: all at the same time; the order, if any, is in Ordering."""
        running = [container for container in self.containers if container.process and container.process.poll() is None]
        ordering = Ordering(self, running) if any(container.sidecar for container in self.inits) else None
        threads = [threading.Thread(target=container.kill, args=(grace, ordering), daemon=True) for container in running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.over.set()

    def close(self):
        """What is left of it, at the end of a check."""
        self.deleted = True
        for container in self.containers:
            if container.process and container.process.poll() is None:
                container.process.kill()
                container.process.wait()
        self.sandbox.close()
