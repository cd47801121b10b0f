"""A stand-in for NVIDIA's MPS control program: it does with pipes, logs and servers what that does, and no GPU is
needed. What it cannot show is that kernels run at the same time."""
import os

CONTROL = r"""#!/bin/sh
# nvidia-cuda-mps-control: -f is the daemon; without arguments, commands from standard input go to the daemon.
pipes=${CUDA_MPS_PIPE_DIRECTORY:?} logs=${CUDA_MPS_LOG_DIRECTORY:?}
if [ "$1" = -f ]; then
    %s
    echo "daemon $$, servers' user $(id -u)" >>"$logs/control.log"
    setsid sleep 1000 & # a server
    mkfifo "$pipes/commands" && : >"$pipes/control"
    while read -r word <"$pipes/commands"; do
        [ "$word" = quit ] && echo quit >>"$logs/control.log" && kill $! && exit 0
    done
else
    read -r word
    if [ "$word" = get_server_list ]; then
        cat "$pipes/servers" 2>/dev/null || true # a test writes it
    else
        echo "$word" >"$pipes/commands"
    fi
fi
"""


def fake(folder, before=""):
    """Makes one in folder, whose daemon begins with `before`; returns a PATH that has it."""
    path = os.path.join(folder, "nvidia-cuda-mps-control")
    with open(path, "w") as f:
        f.write(CONTROL % (before or ":"))
    os.chmod(path, 0o755)
    return folder + ":" + os.environ["PATH"]
