#!/usr/bin/env bash
# Runs a recipe as Slurm jobs: the same bytes as `potable prep`, from many machines.
#
#     slurm_prep.sh RECIPE --work WORK [options]
#
# `potable plan` runs here. Then a chain of jobs is submitted, each held until the one before it is done:
#
#     map (array: some units a task) -> select -> reduce (array: some partitions a task) -> seal
#
# and behind them a small job that looks at `potable status` and submits what is still missing, nothing
# else: units whose task failed, whose node was lost or whose file was damaged, and another round of map
# where a cap needs more rows. It gives up when a chain brought nothing forward, three times in a row.
# The same command goes on after any stop.
#
# WORK, the logs and the binary must be reached by every node under the same name: a shared folder, or
# for WORK s3://... or gs://... with credentials in the environment, which Slurm passes on.
#
# With --wait: exit status as that of potable, 0 done, 1 done but rows could not be read, 2 error.
set -euo pipefail

usage() {
    sed -n '2,18s/^# \{0,1\}//p' "$self"
    cat <<'END'

options:
  --work WORK             work folder, s3://... or gs://...
  --out OUT               where the data set goes (default: WORK/out)
  --potable BIN           the binary (default: potable)
  --logs DIR              logs of the jobs, on a shared folder (default: ./slurm-NAME of the recipe)
  --units-per-task N      units an array task maps (default 1; more where MaxArraySize asks for it)
  --partitions-per-task N the same for reduce
  --max-running N         array tasks at once (default: no limit but Slurm's)
  --cpus-per-task N       cores and threads of a task (default 1)
  --mem SIZE              memory of a task, as sbatch takes it (--mem)
  --select-mem SIZE       the same for select and seal (default: --mem)
  --time TIME             time limit of each job, as sbatch takes it
  --sbatch "OPTIONS"      anything else for each sbatch: account, partition, quality of service
  --scratch DIR           folder for temporary files on the nodes
  --tries N               chains in a row without any progress before it gives up (default 3)
  --limit N, --locked     as for potable plan
  --wait                  wait for the end and show progress
END
}

fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2
    exit 2
}

# What the jobs must know, in a file of shell assignments that they read.
settings=(recipe work out potable logs units_per_task partitions_per_task max_running cpus_per_task mem
    select_mem time_limit sbatch_options scratch tries name self)

defaults() {
    recipe="" work="" out="" potable=potable logs="" units_per_task=1 partitions_per_task=1 max_running=""
    cpus_per_task=1 mem="" select_mem="" time_limit="" sbatch_options="" scratch="" tries=3
    limit="" locked="" wait_for_end=""
}

arguments() {
    while [ $# -gt 0 ]; do
        case "$1" in
        -h | --help) usage; exit 0 ;;
        --locked) locked=yes ;;
        --wait) wait_for_end=yes ;;
        --work | --out | --potable | --logs | --units-per-task | --partitions-per-task | --max-running | \
            --cpus-per-task | --mem | --select-mem | --time | --sbatch | --scratch | --tries | --limit)
            [ $# -ge 2 ] || fail "\`$1\` needs a value" "slurm_prep.sh --help"
            local key=${1#--}
            key=${key//-/_}
            case "$key" in time) key=time_limit ;; sbatch) key=sbatch_options ;; esac
            printf -v "$key" %s "$2"
            shift
            ;;
        -*) fail "\`$1\` is no option" "slurm_prep.sh --help" ;;
        *) [ -z "$recipe" ] || fail "a second recipe, \`$1\`" "slurm_prep.sh --help"; recipe=$1 ;;
        esac
        shift
    done
}

check() {
    [ -n "$recipe" ] || fail "no recipe is named" "slurm_prep.sh --help"
    [ -n "$work" ] || fail "no work folder is named" "add --work, a folder that all nodes share, or s3://..."
    local key
    for key in units_per_task partitions_per_task cpus_per_task tries max_running limit; do
        [[ -z ${!key} || ${!key} =~ ^[1-9][0-9]*$ ]] || fail "--${key//_/-}: \`${!key}\` is not a positive number"
    done
    command -v sbatch >/dev/null ||
        fail "\`sbatch\` is not found" "this is to be run where Slurm jobs can be submitted"
    local found
    found=$(command -v "$potable") || fail "\`$potable\` is not found" "name the binary with --potable"
    potable=$(realpath "$found")
    name=potable-$(basename "$recipe" .toml)
    # A relative folder means nothing in a job.
    case "$work" in *://*) ;; *) mkdir -p "$work"; work=$(realpath "$work") ;; esac
    case "$out" in "" | *://*) ;; *) out=$(realpath -m "$out") ;; esac
    logs=$(realpath -m "${logs:-slurm-${name#potable-}}")
    mkdir -p "$logs"
    local running
    running=$(squeue --noheader --format="%i %k" --name="$name-control" 2>&1) ||
        fail "squeue: $running" "is slurmctld up, and SLURM_CONF right?"
    # The comment of a control job is the folder of its logs, whatever signs that has.
    running=$(printf '%s\n' "$running" | while IFS= read -r line; do
        [ "${line#* }" != "$logs" ] || { printf %s "${line%% *}"; break; }
    done)
    [ -z "$running" ] || fail "this run goes on already: job $running" "watch $logs, or stop it: $(stop_command)"
}

submit() {
    local plan=("$potable" plan "$recipe" --work "$work")
    [ -z "$out" ] || plan+=(--out "$out")
    [ -z "$limit" ] || plan+=(--limit "$limit")
    [ -z "$locked" ] || plan+=(--locked)
    "${plan[@]}" >/dev/null || fail "potable plan ended with exit status $?, its message is above"
    rm -f "$logs"/result "$logs"/*.code "$logs"/stalled "$logs"/before
    local key
    for key in "${settings[@]}"; do printf '%s=%q\n' "$key" "${!key}"; done >"$logs/settings"
    chain
    printf '%s: jobs are submitted, their logs go to %s\n' "$name" "$logs" >&2
    [ -z "$wait_for_end" ] || wait_until_done
}

# ---- what status says -------------------------------------------------------------------------

# One line a phase: its name (- if it has none), rounds of map, missing units, selected, missing partitions, sealed.
# A further round is something brought forward, even where it asks for the very units of the round before.
phases() {
    local answer
    answer=$("$potable" status --work "$work" --format json) || return 2
    printf %s "$answer" | tr -d ' \n' | grep -o '{"phase":[^}]*}' |
        sed -E 's/^\{"phase":("([^"]*)"|null),"round":([0-9]+).*"missing_units":\[(.*)\],"selected":(true|false).*"missing_partitions":\[(.*)\],"sealed":(true|false).*/\2|\3|\4|\5|\6|\7/; s/^\|/-|/'
}

# `[0,3],[7,8]` in pieces of at most $2 each, one line a piece: 0..2 2..3 7..8
pieces() {
    printf %s "$1" | grep -oE '[0-9]+,[0-9]+' | awk -F, -v each="$2" '
        { for (at = $1; at < $2; at += each) print at ".." (at + each < $2 ? at + each : $2) }'
}

# How many stand in `[0,3],[7,8]`.
count() { printf %s "$1" | grep -oE '[0-9]+,[0-9]+' | awk -F, '{ n += $2 - $1 } END { print n + 0 }'; }

# ---- submitting -------------------------------------------------------------------------------

# Words for the /bin/sh that runs what sbatch wraps. `printf %q` is not: in a C locale it writes $'...' for letters
# beyond ASCII, which dash does not know.
quoted() {
    local word
    for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
}

job() { # job NAME MEM DEPENDENCY SBATCH-OPTION... -- COMMAND...
    local options=(--parsable --job-name="$1" --output="$logs/%x-%j.log" --chdir="$logs" --cpus-per-task="$cpus_per_task"
        --kill-on-invalid-dep=yes)
    [ -z "$2" ] || options+=(--mem="$2")
    [ -z "$3" ] || options+=(--dependency="$3")
    [ -z "$time_limit" ] || options+=(--time="$time_limit")
    local mark="" id
    case "$1" in *-control) mark=--comment=$logs ;; esac
    shift 3
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    # By its comment the run is known again, so that comes after the one that --sbatch may give.
    # shellcheck disable=SC2086
    id=$(sbatch "${options[@]}" $sbatch_options ${mark:+"$mark"} --wrap "exec bash $(quoted "$@")") ||
        fail "sbatch refused a job (its message is above)" "memory, time and --sbatch options must fit the cluster"
    printf '%s\n' "${id%%;*}"
}

# The pieces of a step as an array: a line of a file is what a task does.
array() { # array STEP PHASE RANGES EACH DEPENDENCY
    local step=$1 phase=$2 ranges=$3 each=$4 dependency=$5 most file lines
    most=$(($(scontrol show config | awk '$1 == "MaxArraySize" { print $3 }') - 1))
    # Pieces grow until the array is allowed. Ranges that are too many by themselves wait for the next chain.
    while lines=$(pieces "$ranges" "$each" | wc -l); [ "$lines" -gt "$most" ] && [ "$each" -lt 1000000000 ]; do
        each=$((each * 2))
    done
    file=$(mktemp "$logs/$step-XXXXXX.tasks")
    pieces "$ranges" "$each" | head -n "$most" >"$file"
    lines=$(wc -l <"$file")
    job "$name" "$mem" "$dependency" --array="0-$((lines - 1))${max_running:+%$max_running}" --requeue \
        --output="$logs/$step-%A_%a.log" -- "$self" --task "$logs" "$step" "$phase" "$file"
}

# Everything that is missing, step behind step, and the job that looks after it.
chain() {
    local state phase round units selected partitions sealed all=() last="" ends="" next
    state=$(phases) || fail "potable status gives no answer for \`$work\`"
    [ -n "$state" ] || fail "potable status names no phase of \`$work\`" "are slurm_prep.sh and potable of one version?"
    printf '%s\n' "$state" >"$logs/before"
    while IFS='|' read -r phase round units selected partitions sealed; do
        local behind="$last"
        if [ -n "$units" ]; then
            next=$(array map "$phase" "$units" "$units_per_task" "")
            all+=("$next")
            behind="$behind:$next"
        fi
        if [ "$selected" = false ]; then
            next=$(job "$name" "${select_mem:-$mem}" "${behind:+afterok$behind}" \
                -- "$self" --task "$logs" select "$phase" -)
            all+=("$next")
            behind=":$next"
            # A later phase may leave out the rows of this one.
            last=":$next"
        fi
        if [ -n "$partitions" ]; then
            next=$(array reduce "$phase" "$partitions" "$partitions_per_task" "${behind:+afterok$behind}")
            all+=("$next")
            behind=":$next"
        fi
        [ -z "$behind" ] || ends+="$behind"
    done <<<"$state"
    # All phases, and the index over them. What is sealed already says its exit status once more.
    all+=("$(job "$name" "${select_mem:-$mem}" "${ends:+afterok$ends}" -- "$self" --task "$logs" seal - -)")
    local ids
    ids=$(IFS=:; printf %s "${all[*]}")
    job "$name-control" "" "afterany:$ids" -- "$self" --control "$logs" >/dev/null
}

# ---- in the jobs ------------------------------------------------------------------------------

task() { # task STEP PHASE FILE
    local command=("$potable" "$1" --work "$work" --no-progress --threads "$cpus_per_task") code=0
    [ "$2" = - ] || command+=(--phase "$2")
    [ -z "$scratch" ] || command+=(--scratch "$scratch")
    case "$1" in
    map) command+=(--unit "$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$3")") ;;
    reduce) command+=(--partition "$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$3")") ;;
    esac
    # The processor time goes to the log; it is what docs/scaling.md is made from.
    TIMEFORMAT="seconds: %R wall, %U user, %S system"
    time "${command[@]}" || code=$?
    if [ "$1" = seal ] && [ "$code" -le 1 ]; then
        printf '%s\n' "$code" >"$logs/seal.code"
        code=0
    fi
    exit "$code"
}

# Looks at what a chain left, and submits the next one, or writes the result.
control() {
    local state code stalled=0
    if ! state=$(phases); then
        sleep 10
        state=$(phases) || result 2 "potable status gives no answer for \`$work\`"
    fi
    if [ -f "$logs/seal.code" ]; then
        code=$(cat "$logs/seal.code")
        [ "$code" = 0 ] || result "$code" "the data set is sealed, but rows could not be read; dropped/ lists them"
        result 0 "the data set is sealed"
    fi
    if [ "$state" = "$(cat "$logs/before")" ]; then
        stalled=$(($(cat "$logs/stalled" 2>/dev/null || echo 0) + 1))
    fi
    printf '%s\n' "$stalled" >"$logs/stalled"
    if [ "$stalled" -ge "$tries" ]; then
        result 2 "$stalled chains in a row brought nothing forward; the last error: $(last_error)"
    fi
    printf 'missing is submitted again:\n%s\n' "$state"
    ( chain ) || result 2 "the next chain could not be submitted, see $logs"
}

last_error() {
    local file newest=""
    for file in "$logs"/*.log; do
        if grep -q '^error:' "$file" && { [ -z "$newest" ] || [ "$file" -nt "$newest" ]; }; then newest=$file; fi
    done
    if [ -n "$newest" ]; then grep -m 1 -A 4 '^error:' "$newest"; return; fi
    echo "none in $logs: were the jobs cancelled? see squeue and sacct"
}

result() { # result CODE TEXT
    printf '%s\n%s\n' "$1" "$2" >"$logs/result.new"
    mv "$logs/result.new" "$logs/result"
    printf '%s\n' "$2"
    exit "$1"
}

# ---- waiting ----------------------------------------------------------------------------------

# Of several --name scancel heeds the last alone.
stop_command() { echo "scancel --name=$(quoted "$name-control"); scancel --name=$(quoted "$name")"; }

wait_until_done() {
    local shown=0 now gone=0 state
    trap 'echo "the jobs go on without this command; stop them: $(stop_command)" >&2; exit 130' INT
    while [ ! -f "$logs/result" ]; do
        sleep 2
        now=$SECONDS
        if [ $((now - shown)) -ge 10 ]; then
            shown=$now
            state=$(phases 2>/dev/null || true)
            printf '%s' "$state" | while IFS='|' read -r phase round units selected partitions sealed || [ -n "$phase" ]; do
                printf '%s%s s: round %s of map, %s units and %s partitions missing, selected %s, sealed %s, %s jobs in the queue\n' \
                    "$([ "$phase" = - ] || echo "phase $phase, ")" "$now" "$round" "$(count "$units")" "$(count "$partitions")" \
                    "$selected" "$sealed" "$(squeue --noheader --array --name="$name" | wc -l)" >&2
            done
        fi
        # The control job ends the run; if someone cancelled it, nobody will.
        if [ -z "$(squeue --noheader --name="$name,$name-control" 2>/dev/null)" ]; then gone=$((gone + 1)); else gone=0; fi
        [ "$gone" -lt 5 ] || [ -f "$logs/result" ] || fail "no job of this run is left in the queue, and none said why" \
            "cancelled? the same command goes on"
    done
    local code
    code=$(head -n 1 "$logs/result")
    tail -n +2 "$logs/result" >&2
    cat "$logs/$name"-*.log 2>/dev/null | grep -A 30 '^read  ' >&2 || true
    exit "$code"
}

self=$(realpath "$0")
case "${1:-}" in
--task | --control)
    # shellcheck disable=SC1091
    . "$2/settings"
    if [ "$1" = --task ]; then task "$3" "$4" "$5"; else control; fi
    ;;
*)
    defaults
    arguments "$@"
    check
    submit
    ;;
esac
