# shellcheck shell=bash
# What several stages share. Sourced by `run`.

replay() { # lists of variants; each list is one run
  need_shared && need_binary && need_python || return
  local folder part reports=() runs=()
  folder=$(mktemp -d)
  # The runs are parallel, because each is mostly one Python thread.
  for part in "$@"; do
    reports+=("$folder/$part.json")
    "$environment/bin/python" "$shared/tools/replay_check.py" \
      --binary "$binary" --corpus "$shared/corpus/dev" --count --report "$folder/$part.json" --variants "$part" &
    runs+=($!)
  done
  # The tool builder also runs in the background: wait for the runs only.
  wait "${runs[@]}"
  # A run that was interrupted leaves no report, which the verdict treats as an error.
  "$environment/bin/python" tests/python/replay_verdict.py "${reports[@]}" tests/python/replay_disagreements.json
}

host() {
  rustc -vV | sed -n 's/^host: //p'
}

# The time of the last commit in seconds since 1970, or nothing outside a git checkout.
commit_time() {
  git log -1 --format=%ct 2>/dev/null
}

need_real_node() { # more tools
  need_binary && need_python && need etcd etcd-server && need openssl openssl && need containerd containerd && need runc runc || return
  need iptables iptables && need busybox busybox-static && need /usr/lib/cni/ptp containernetworking-plugins && need_kubectl || return
  need_tools kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet prometheus3 "$@" || return
  [ -s "$target/image.tar" ] || stage docker
}

run_on_node() {
  "$environment/bin/python" tests/python/node_check.py --binary "$binary" --image "$target/image.tar" --tools "$tools" --helm "$tools/helm" "$@"
}
