#!/usr/bin/env bash
# A Slurm cluster on this machine alone, for tries and measurements: slurmctld and some slurmd, on loopback.
#
#     slurm_cluster.sh start FOLDER [NODES]     then: export SLURM_CONF=FOLDER/slurm.conf
#     slurm_cluster.sh kill-node FOLDER N       a node lost: its slurmd and all jobs on it, kill -9
#     slurm_cluster.sh stop FOLDER
#
# FOLDER must have a name without spaces. Needs root and Debian's packages: apt-get install slurmctld slurmd slurm-client munge
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
action=$1
folder=$(realpath -m "$2")
case "$folder" in
*[[:space:]#%,=\"\\]*)
    echo "error: \`$folder\`: slurm.conf cannot name a folder with spaces or any of # % , = \" \\" >&2
    echo "hint: name a folder without them, such as /tmp/slurm" >&2
    exit 2
    ;;
esac
mkdir -p "$folder"
export SLURM_CONF=$folder/slurm.conf

start() {
    local nodes=$1 host at
    host=$(hostname)
    mkdir -p "$folder/state" "$folder/log" "$folder/run"
    cat >"$SLURM_CONF" <<END
ClusterName=potable
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_res
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=2
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=2
$(for at in $(seq "$nodes"); do
        echo "NodeName=node$at NodeHostname=$host NodeAddr=127.0.0.1 Port=$((26817 + at)) CPUs=1 RealMemory=6000"
    done)
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    if ! munge -n >/dev/null 2>&1; then
        mkdir -p /run/munge
        chown munge: /run/munge
        su -s /bin/sh munge -c /usr/sbin/munged
    fi
    slurmctld -f "$SLURM_CONF"
    for at in $(seq "$nodes"); do slurmd -f "$SLURM_CONF" -N "node$at"; done
    for at in $(seq 60); do
        [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -ge "$nodes" ] && return
        sleep 0.5
    done
    echo "error: the nodes do not come up, see $folder/log" >&2
    exit 2
}

# The jobs of a node: slurmstepd processes that write to its log, and what they started.
kill_node() {
    local pid
    kill -9 "$(cat "$folder/run/node$1.pid")"
    for pid in $(pgrep -x slurmstepd); do
        if find "/proc/$pid/fd" -lname "$folder/log/node$1.log" 2>/dev/null | grep -q .; then kill_below "$pid"; fi
    done
}

kill_below() {
    local child
    for child in $(pgrep -P "$1"); do kill_below "$child"; done
    kill -9 "$1" 2>/dev/null || true
}

stop() {
    local file
    scancel --user="$(id -un)" 2>/dev/null || true
    for file in "$folder"/run/*.pid; do
        [ ! -f "$file" ] || kill "$(cat "$file")" 2>/dev/null || true
    done
}

case "$action" in
start) start "${3:-2}" ;;
kill-node) kill_node "$3" ;;
stop) stop ;;
*) echo "error: \`$action\` is no action" >&2; exit 2 ;;
esac
