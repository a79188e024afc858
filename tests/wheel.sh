#!/bin/sh
# What `make wheel` runs in the folder of an environment that has the wheel and PyTorch, no more.
set -eu
export WEFT_CACHE="$PWD/cache"
unset PYTHONPATH  # or a checkout would be found first
program='nn.RMSNorm(64)(torch.randn(8, 64))'
bin/python -c 'import weft; assert "site-packages" in weft.__file__, weft.__file__'
bin/weft run -c "$program"
bin/weft run -c "$program" --target cuda:sm_90a --simulate | grep passed
bin/weft explain -c "$program" -o page.html
bin/weft export -c "$program" -o norm
make -s -C norm
norm/example norm/weights.safetensors
bin/python -c 'from weft.cli.workloads import WORKLOADS; print(len(WORKLOADS), "workloads")'
