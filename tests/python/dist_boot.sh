#!/bin/bash
# Boots systemd in a copy of this machine's root, installs a deb there, and starts, reloads and stops its service. Prints facts as
# NAME=VALUE, then `done`. The first process of new PID, mount, UTS, IPC and cgroup namespaces runs it:
#
#   dist_boot.sh FOLDER DEB
set -e
folder=$1 deb=$2 root=$1/root

# Runs inside the new root, beside systemd.
if [ "$folder" = inside ]; then
  state() { systemctl show tokengauge --property "$1" --value; }
  until systemctl is-active --quiet basic.target 2>/dev/null; do sleep 0.2; done
  if systemctl start tokengauge; then echo "started=yes"; else journalctl --unit tokengauge --no-pager --lines 20; fi
  echo "ready=$(curl --silent http://127.0.0.1:4001/readyz)"
  echo "status=$(state StatusText)"
  echo "files=$(state LimitNOFILE)"
  sed -n 's/^\(Uid\|CapEff\|NoNewPrivs\|Seccomp\):\t*\([0-9a-f]*\).*/\1=\2/p' "/proc/$(state MainPID)/status"
  echo "nonsense: 1" >>/etc/tokengauge/tokengauge.yaml
  systemctl reload tokengauge && echo "reloaded=yes"
  for _ in $(seq 100); do
    [ "$(state StatusText)" = serving ] || break
    sleep 0.1
  done
  echo "rejected=$(state StatusText)"
  systemctl stop tokengauge
  echo "result=$(state Result) $(state ActiveState)"
  echo "warnings=$(journalctl --unit tokengauge --no-pager --output cat --grep 'WARN' | grep -cv nonsense)"
  echo "done"
  exit
fi

mkdir -p "$root"
mount -t tmpfs none "$folder"
mkdir "$folder/upper" "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
for name in dev sys; do mount --rbind "/$name" "$root/$name"; done
umount -R "$root/sys/fs/cgroup" 2>/dev/null || true
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t proc proc "$root/proc"
for name in run tmp; do mount -t tmpfs none "$root/$name"; done
mkdir "$root/run/old"
dpkg --root="$root" --install "$deb" >/dev/null
cp "$0" "$root/run/dist_boot.sh"
cd "$root"
# A root of `chroot` forbids user namespaces (PrivateUsers).
pivot_root . run/old
umount --lazy /run/old
echo "booting=yes"
bash /run/dist_boot.sh inside &
container=unshare exec /lib/systemd/systemd --unit=basic.target --log-target=null </dev/null
