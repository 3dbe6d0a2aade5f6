"""A small kubelet: starts a pod's containers in order, probes them, and ends them in order.

This module follows the kubelet of kubernetes v1.34.2. Comments name the functions, in pkg/kubelet/kuberuntime unless another folder is
named. There are no cgroups, images, volumes or users. A container is a process, in the pod's network namespace if there is one.
A spec that needs more raises `Unsupported` if the missing feature would change the order of events.
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

# kuberuntime_manager.go: the minimum grace period of a container, even if its hooks took longer.
MINIMUM_GRACE = 2


class EventKind(enum.Enum):
    """Events in the life of a container."""

    STARTED = "started"
    STARTUP = "startup probe succeeded"
    READY = "ready"
    UNREADY = "not ready"
    PRESTOP = "preStop started"
    PRESTOPPED = "preStop ended"
    TERM = "SIGTERM"
    KILL = "SIGKILL"
    EXITED = "exited"


@dataclasses.dataclass(frozen=True)
class Event:
    at: float
    what: EventKind
    container: str
    detail: object = ""


class Container:
    """One container of a pod, through its restarts."""

    def __init__(self, pod, spec, init):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.sidecar = init and specs.native(spec)
        self.variables = specs.environment(spec, pod.identity)
        self.process, self.started, self.ready, self.restarts = None, False, False, 0
        # Set when the current process has exited and all listeners were called.
        self.exits, self.gone = [], threading.Event()
        self.log = pod.folder / f"{self.name}.log"

    def run(self, command):
        """Starts a process in the pod's sandbox. Its environment holds only the container's variables."""
        with open(self.log, "ab") as log:
            return subprocess.Popen([*self.pod.sandbox.enter, *command], env={"PATH": os.environ["PATH"], "HOSTNAME": self.pod.identity.name, **self.variables},
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.started = self.ready = False
        self.gone = threading.Event()
        self.process = self.run(specs.command(self.spec, self.pod.images, self.variables))
        self.pod.record_event(EventKind.STARTED, self)
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
        self.pod.record_event(EventKind.EXITED, self, code)
        gone.set()
        self.pod.exited(self)

    def has_started(self):
        self.started = True
        # prober/prober_manager.go, UpdatePodStatus: a container without a readiness probe is ready once it has started.
        if "readinessProbe" not in self.spec:
            self.set_ready(True)

    def set_ready(self, ready):
        if ready != self.ready:
            self.ready = ready
            self.pod.record_event(EventKind.READY if ready else EventKind.UNREADY, self)
            self.pod.readiness_changed()

    # --- probes: prober/worker.go, doProbe ---

    def probe(self, kind, process):
        probe = self.spec[kind]
        began, run, last = time.monotonic(), 0, None
        while process.poll() is None:
            # After the deletion of the pod only the readiness probe continues.
            if self.pod.deleted and kind != "readinessProbe":
                return
            if time.monotonic() - began >= probe.get("initialDelaySeconds", 0) and self.started == (kind != "startupProbe"):
                good = self.succeeds(probe)
                run, last = (run + 1 if good == last else 1), good
                if run >= (probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)) and process.poll() is None:
                    if not self.apply_probe_result(kind, good):
                        return
            time.sleep(probe.get("periodSeconds", 10) if self.started or kind == "startupProbe" else 0.1)

    def apply_probe_result(self, kind, good):
        """Applies the outcome of a probe. Returns whether probing continues."""
        match kind:
            case "readinessProbe":
                self.set_ready(good)
                return True
            case "livenessProbe" if good:
                return True
            case "startupProbe" if good:
                self.pod.record_event(EventKind.STARTUP, self)
                self.has_started()
            case "livenessProbe" | "startupProbe":
                # setTerminationGracePeriod: the probe's grace period, or else the pod's.
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
        """Sends a GET from the node to the pod's address."""
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

    # --- termination: kuberuntime_container.go, killContainer ---

    def kill(self, grace, ordering):
        """Stops the container. `grace` is in whole seconds. The time of hooks and waiting is subtracted and rounded down."""
        process, gone, hook = self.process, self.gone, self.spec.get("lifecycle", {}).get("preStop")
        if hook and grace > 0:
            grace -= self.prestop(hook, grace)
        if ordering and grace > 0:
            grace -= int(ordering.wait_for_turn(self, grace))
        self.stop(process, gone, max(grace, MINIMUM_GRACE))
        if ordering:
            ordering.terminated[self.name].set()

    def prestop(self, hook, grace):
        """executePreStopHook: the container is stopped afterwards whether the hook succeeds or fails."""
        began = time.monotonic()
        self.pod.record_event(EventKind.PRESTOP, self)
        outcome = []
        runner = threading.Thread(target=lambda: outcome.append(self.hooked(hook)), daemon=True)
        runner.start()
        runner.join(grace)
        self.pod.record_event(EventKind.PRESTOPPED, self, outcome[0] if outcome else "not completed in the grace period")
        return int(time.monotonic() - began)

    def hooked(self, hook):
        """lifecycle/handlers.go, Run: commands and GETs have no timeout, and the status of a GET is ignored."""
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
        """The runtime's StopContainer: SIGTERM, then SIGKILL after `grace` seconds."""
        if not gone.is_set():
            self.pod.record_event(EventKind.TERM, self, f"{grace} s")
            process.send_signal(signal.SIGTERM)
            if not gone.wait(grace):
                self.pod.record_event(EventKind.KILL, self)
                process.kill()
                gone.wait()


class Ordering:
    """kuberuntime_termination_order.go: within the grace period, a sidecar waits for all other containers and for later sidecars."""

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
    """A pod from start to termination."""

    def __init__(self, spec, metadata, sandbox, node, images, paths, folder, service=None):
        """`images` is passed to `specs.command`. `paths` maps absolute paths in hooks to local commands."""
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
        # Seconds that the runtime needs to start a hook's command.
        self.exec_takes = 0

    def container(self, name):
        return next(container for container in self.containers if container.name == name)

    def here(self, command):
        return [self.paths.get(command[0], command[0]), *command[1:]]

    def record_event(self, what, container, detail=""):
        """Records an event. Listeners run first, before the event takes effect."""
        for observer in self.observers[what, container.name]:
            observer()
        self.events.append(Event(time.monotonic(), what, container.name, detail))

    def when(self, what, name):
        """Returns the time of the first such event, or None."""
        return next((event.at for event in self.events if (event.what, event.container) == (what, name)), None)

    def start(self, timeout):
        """computeInitContainerActions: init containers start one after the other. A sidecar's successor starts once the sidecar has started."""
        limit = time.monotonic() + timeout
        for container in self.inits:
            container.start()
            while not (container.started if container.sidecar else container.exits):
                if time.monotonic() > limit or container.exits and container.exits[-1]:
                    raise SystemExit(f"{container.name} did not start; see {container.log}")
                time.sleep(0.05)
        for container in self.apps:
            container.start()
        while not self.ready and not self.over.is_set():
            if time.monotonic() > limit:
                raise SystemExit(f"{self.identity.name} did not become ready: {[one.name for one in self.apps if not one.ready]}; see {self.folder}")
            time.sleep(0.05)

    def readiness_changed(self):
        """status/generate.go: a pod is ready if all containers and sidecars are ready."""
        with self.lock:
            ready = all(container.ready for container in self.containers if container in self.apps or container.sidecar)
            changed, self.ready = ready != self.ready, ready
        if changed and self.service:
            self.service.changed(self)

    def exited(self, container):
        """Restarts the container if its policy requires that. If all main containers have completed, terminates the pod with its sidecars."""
        policy = "Always" if container.sidecar else self.spec.get("restartPolicy", "Always")
        if container in self.inits and not container.sidecar:
            return
        with self.lock:
            if self.deleted:
                return
            if policy == "Always" or policy == "OnFailure" and container.exits[-1] != 0:
                # The first restart is immediate. Later ones back off 10 s, 20 s and so on (kubelet.go, initialBackOff).
                rest = threading.Timer(10 * 2 ** (container.restarts - 1) if container.restarts else 0, self.restart, (container,))
                rest.daemon = True
                rest.start()
                return
            # A terminal phase ends the pod (kubelet.go, SyncPod; pod_workers.go, completeSync).
            if all(one.exits and one.process.poll() is not None for one in self.apps):
                self.deleted = True
                threading.Thread(target=self.terminate, args=(self.grace,), daemon=True).start()

    def restart(self, container):
        with self.lock:
            if not self.deleted:
                container.restarts += 1
                container.start()

    def delete(self, grace=None):
        """Deletes the pod like the API. Returns at once; `over` is set when the pod has ended."""
        with self.lock:
            self.deleted = True
        self.deleted_at = time.monotonic()
        if self.service:
            self.service.changed(self)
        threading.Thread(target=self.terminate, args=(self.grace if grace is None else grace,), daemon=True).start()

    def terminate(self, grace):
        """killContainersWithSyncResult: stops all containers concurrently. Ordering delays sidecars."""
        running = [container for container in self.containers if container.process and container.process.poll() is None]
        ordering = Ordering(self, running) if any(container.sidecar for container in self.inits) else None
        threads = [threading.Thread(target=container.kill, args=(grace, ordering), daemon=True) for container in running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.over.set()

    def close(self):
        """Kills remaining processes at the end of a check."""
        self.deleted = True
        for container in self.containers:
            if container.process and container.process.poll() is None:
                container.process.kill()
                container.process.wait()
        self.sandbox.close()
