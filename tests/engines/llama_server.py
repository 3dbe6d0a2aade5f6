#!/usr/bin/env python3
"""Runs the HTTP server of llama.cpp, from the package `xllamacpp`, until SIGTERM.

    llama_server.py MODEL.gguf PORT [KEY=VALUE...]

KEY is a field of llama.cpp's `common_params` (`n_parallel`, `embedding`), VALUE is JSON.
"""
import json
import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.endpoint_metrics = params.endpoint_slots = True
params.n_gpu_layers = 0
# Several threads wait for each other in busy loops, which takes 100 times longer if other processes use the cores.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
for setting in sys.argv[3:]:
    key, value = setting.split("=", 1)
    setattr(params, key, json.loads(value))
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
